# frozen_string_literal: true

require_relative "../test_helper"

# ACLs as values, and what calls reject before anything is sent.
class AdminAclsTest < Minitest::Test
  Acl = Penstock::Admin::Acl

  def setup
    @admin = Penstock::Admin.new("bootstrap.servers": "127.0.0.1:1", log_level: 0)
  end

  def teardown
    assert_equal :configured, @admin.state, "something was sent"
    @admin.close
  end

  def acl(**given) = Acl.new(principal: "User:x", operation: :describe, **given)

  def rejected(pattern, &block)
    error = assert_raises(ArgumentError, &block)
    assert_match(pattern, error.message)
  end

  # ---- the value ----

  def test_defaults_are_the_literal_name_any_host_and_allow
    assert_equal({ resource: :topic, name: "a", pattern: :literal, principal: "User:x", host: "*", operation: :read,
                   permission: :allow }, Acl.new(topic: "a", principal: "User:x", operation: :read).to_h)
  end

  def test_each_resource_has_a_keyword
    assert_equal [:topic, "a"], acl(topic: "a").to_h.values.first(2)
    assert_equal [:group, "g"], acl(group: "g").to_h.values.first(2)
    assert_equal [:transactional_id, "t"], acl(transactional_id: "t").to_h.values.first(2)
    assert_equal [:cluster, "kafka-cluster"], acl(cluster: true).to_h.values.first(2)
  end

  def test_an_acl_is_made_of_another_acls_members
    [acl(topic: "a", pattern: :prefixed, permission: :deny, host: "1.2.3.4"), acl(cluster: true), acl(group: "g")].each do |one|
      assert_equal one, Acl.new(**one.to_h)
      assert_equal one.hash, Acl.new(**one.to_h).hash
    end
  end

  def test_an_acl_does_not_follow_the_strings_that_it_was_made_of
    name = +"a"
    one = acl(topic: name)
    name << "b"
    assert_equal "a", one.name
    assert Ractor.shareable?(one)
    assert_predicate one, :frozen?
  end

  def test_an_acl_reads_as_a_sentence
    assert_equal 'allow User:x describe on topic "a"', acl(topic: "a").to_s
    assert_equal 'deny User:x describe on group "g" and longer names from 1.2.3.4',
                 acl(group: "g", pattern: :prefixed, permission: :deny, host: "1.2.3.4").to_s
    assert_equal "#<Penstock::Admin::Acl allow User:x describe on the cluster>", acl(cluster: true).inspect
    assert_equal '#<Penstock::Admin::Acl allow User:\e describe on the cluster>',
                 Acl.new(cluster: true, principal: "User:\e", operation: :describe).inspect.sub('\x1B', '\e')
  end

  def test_an_acl_needs_one_resource
    rejected(/an ACL requires topic, group, transactional_id or cluster/) { acl }
    rejected(/an ACL concerns one resource, not topic and group/) { acl(topic: "a", group: "g") }
    rejected(/not topic and cluster/) { acl(topic: "a", cluster: true) }
    rejected(/not topic and name/) { acl(topic: "a", name: "b") }
    rejected(/an ACL requires name/) { acl(resource: :topic) }
    rejected(/cluster must be true, not "c"/) { acl(cluster: "c") }
    rejected(/name of the cluster must be "kafka-cluster", not "c"/) { acl(resource: :cluster, name: "c") }
    rejected(/topic must be a non-empty UTF-8 String without a zero byte, not :a/) { acl(topic: :a) }
    rejected(/group must be .*, not ""/) { acl(group: "") }
  end

  def test_wrong_members_are_named
    rejected(/unknown keyword: :topik \(did you mean :topic\?\); write new\(topic:/) { acl(topik: "a") }
    rejected(/an ACL requires operation/) { Acl.new(topic: "a", principal: "User:x") }
    rejected(/an ACL requires principal/) { Acl.new(topic: "a", operation: :read) }
    rejected(/a principal must have a type, such as "User:x", not "x"/) { acl(topic: "a", principal: "x") }
    rejected(/unknown operation :raed \(did you mean :read\?\)/) { acl(topic: "a", operation: :raed) }
    rejected(/unknown operation "read" \(write :read\)/) { acl(topic: "a", operation: "read") }
    rejected(/unknown permission :allowed \(did you mean :allow\?\)/) { acl(topic: "a", permission: :allowed) }
    rejected(/unknown pattern :prefix \(did you mean :prefixed\?\)/) { acl(topic: "a", pattern: :prefix) }
    rejected(/host must be a non-empty UTF-8 String/) { acl(topic: "a", host: 1) }
  end

  def test_what_only_a_filter_may_say_is_rejected
    rejected(/pattern must be :literal or :prefixed in an ACL, not :match/) { acl(topic: "a", pattern: :match) }
    rejected(/operation must not be :any in an ACL/) { acl(topic: "a", operation: :any) }
    rejected(/resource must not be :any in an ACL/) { acl(resource: :any, name: "a") }
  end

  def test_operations_that_a_resource_does_not_have_are_rejected
    rejected(/no operation :write on a group; there are all, read, delete/) { acl(group: "g", operation: :write) }
    rejected(/no operation :read on a cluster/) { acl(cluster: true, operation: :read) }
    rejected(/no operation :read on a transactional_id; there are all, write, describe/) do
      acl(transactional_id: "t", operation: :read)
    end
    rejected(/pattern must be :literal for the cluster/) { acl(cluster: true, pattern: :prefixed) }
  end

  # ---- calls ----

  def test_calls_of_the_wrong_form_are_rejected
    rejected(/must be a Penstock::Admin::Acl, not an object of the class Hash/) { @admin.create_acls({ topic: "a" }) }
    rejected(/unknown keyword: :topic; write create_acls/) { @admin.create_acls(topic: "a") }
    rejected(/ACL .* is given twice/) { @admin.create_acls(*[acl(topic: "a")] * 3) }
    rejected(/unknown keyword: :topics \(did you mean :topic\?\)/) { @admin.acls(topics: "a") }
    rejected(/1 positional argument too many/) { @admin.acls("a") }
    rejected(/unknown resource "topic" \(write :topic\)/) { @admin.acls(resource: "topic") }
    rejected(/a principal must have a type/) { @admin.acls(principal: "x") }
    rejected(/above 0 and at most 3600/) { @admin.acls(timeout: 0) }
  end

  def test_filters_of_deletions_need_a_condition
    rejected(/a filter without a condition would delete all ACLs; if this is meant, write { resource: :any }/) do
      @admin.delete_acls({})
    end
    rejected(/a filter without a condition/) { @admin.delete_acls({ principal: nil, topic: nil }) }
    rejected(/a filter must be a Hash or a Penstock::Admin::Acl, not String/) { @admin.delete_acls("a") }
    rejected(/unknown keyword: :principle/) { @admin.delete_acls({ principle: "User:x" }) }
    rejected(/the filter {.*} is given twice/) { @admin.delete_acls({ topic: "a" }, { topic: "a" }) }
    rejected(/an ACL concerns one resource/) { @admin.delete_acls({ topic: "a", group: "b" }) }
  end

  def test_an_acl_that_librdkafka_does_not_know_is_not_sent_back
    strange = Acl.__send__(:received, **acl(topic: "a").to_h, resource: :unknown)
    rejected(/does not know all of this ACL, and cannot create it: #<Penstock::Admin::Acl/) { @admin.create_acls(strange) }
    rejected(/does not know all of this ACL, and cannot find it/) { @admin.delete_acls(strange) }
  end

  def test_nothing_to_do_is_done_at_once
    assert_empty @admin.create_acls
    assert_empty @admin.delete_acls
  end

  def test_transactional_ids_are_unsupported_before_librdkafka_can_send_them
    return if Internal.of(@admin).instance_variable_get(:@client).respond_to?(:create_transactional_id_acls)

    [-> { @admin.create_acls(acl(transactional_id: "t")) }, -> { @admin.acls(transactional_id: "t") },
     -> { @admin.delete_acls({ resource: :transactional_id }) }].each do |call|
      error = assert_raises(Penstock::UnsupportedError, &call)
      assert_match(/cannot send ACLs of transactional ids.*2\.6\.0 or newer/, error.message)
    end
  end
end
