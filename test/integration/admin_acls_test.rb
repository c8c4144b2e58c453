# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/real_admin"

# ACLs on a real Apache Kafka.
class KafkaAdminAclsTest < Minitest::Test
  include RealAdmin

  Acl = Penstock::Admin::Acl

  def setup
    super
    @user = "User:#{unique("user")}"
  end

  def teardown
    @admin.delete_acls({ principal: @user }, { principal: STRANGER }, { principal: EVERYBODY, cluster: true })
    super
  end

  def acl(**given) = Acl.new(principal: @user, operation: :read, **given)

  def create(*acls) = @admin.create_acls(*acls).raise!

  # Returns when the brokers have all of them.
  def created(*acls)
    create(*acls)
    eventually { acls - @admin.acls(principal: acls.first.principal) == [] }
    acls
  end

  # ---- success ----

  def test_acls_are_created_found_and_deleted
    all = [acl(topic: "a"), acl(topic: "a", pattern: :prefixed, permission: :deny, host: "10.0.0.1"),
           acl(group: "g"), acl(cluster: true, operation: :idempotent_write)]
    results = @admin.create_acls(*all)
    assert_equal all.to_h { |one| [one, true] }, results.to_h
    assert Ractor.shareable?(results)
    eventually { @admin.acls(principal: @user).size == 4 }
    assert_equal all.sort_by(&:to_s), @admin.acls(principal: @user).sort_by(&:to_s)
    assert Ractor.shareable?(@admin.acls(principal: @user))

    filters = [{ principal: @user, group: "g" }, all.first, { principal: "#{@user}-nobody" }]
    deleted = @admin.delete_acls(*filters)
    assert_equal filters.zip([[all[2]], [all.first], []]).to_h, deleted.to_h
    assert Ractor.shareable?(deleted)
    refute_predicate filters.last, :frozen?
    eventually { @admin.acls(principal: @user).sort_by(&:to_s) == all.values_at(1, 3).sort_by(&:to_s) }
  end

  def test_an_acl_that_exists_stays
    one, = created(acl(topic: "a"))
    assert_predicate @admin.create_acls(one), :ok?
    assert_equal [one], @admin.acls(principal: @user)
  end

  def test_filters
    name = unique
    prefixed, literal, all, other = created(acl(topic: name[0..-2], pattern: :prefixed), acl(topic: name), acl(topic: "*"),
                                            acl(topic: "#{name}-longer", operation: :write))
    find = ->(**filter) { @admin.acls(principal: @user, **filter).sort_by(&:to_s) }
    assert_equal [literal], find.call(topic: name)
    assert_equal [all, literal, prefixed].sort_by(&:to_s), find.call(topic: name, pattern: :match)
    assert_equal [prefixed], find.call(pattern: :prefixed)
    assert_equal [other], find.call(operation: :write)
    assert_equal [all, literal, other, prefixed].sort_by(&:to_s), find.call(resource: :topic)
    assert_empty find.call(resource: :group)
    assert_empty find.call(host: "10.0.0.1")
    assert_empty find.call(permission: :deny)
    assert_equal [literal], find.call(**literal.to_h.except(:principal))
  end

  def test_names_come_back_as_they_were_sent
    one, = created(acl(group: "gruppe-ü \e[0m"))
    assert_equal [one], @admin.acls(principal: @user)
    assert_equal [one], @admin.delete_acls(one)[one]
  end

  def test_transactional_ids
    skip "needs librdkafka 2.6.0" unless librdkafka?("2.6.0")
    one, = created(Acl.new(transactional_id: "t", principal: @user, operation: :write))
    assert_equal [one], @admin.acls(principal: @user, transactional_id: "t")
    assert_equal [one], @admin.delete_acls({ principal: @user, resource: :transactional_id }).values.first
  end

  # ---- failure ----

  def test_each_acl_is_created_or_has_an_error
    good = acl(topic: "a")
    bad = Acl.__send__(:received, **acl(cluster: true, operation: :alter).to_h, name: "other-cluster")
    results = @admin.create_acls(bad, good)
    assert_equal [bad], results.errors.keys
    assert_instance_of Penstock::AdminError, results.errors[bad]
    assert_equal [good], results.ok.keys
    eventually { @admin.acls(principal: @user) == [good] }
  end

  EVERYBODY = "User:*"

  # Denies the stranger an operation on the cluster. Without the ACL for everybody, all others would lose their rights on it.
  def deny_stranger(operation)
    create(Acl.new(cluster: true, principal: EVERYBODY, operation: :all),
           Acl.new(cluster: true, principal: STRANGER, operation:, permission: :deny))
    stranger
  end

  def test_a_client_that_may_not_change_acls_gets_errors
    one = deny_stranger(:alter)
    new = acl(topic: "a")
    error = eventually { one.create_acls(new).errors[new] || (one.delete_acls(new) && nil) }
    assert_equal :cluster_authorization_failed, error.code
    error = eventually { one.delete_acls({ principal: @user }).errors.values.first }
    assert_equal :cluster_authorization_failed, error.code
  end

  def test_a_client_that_may_not_describe_acls_gets_an_error
    created(acl(topic: "a"))
    one = deny_stranger(:describe)
    return eventually { one.acls(principal: @user).empty? } unless librdkafka?("2.3.0")

    error = eventually { one.acls(principal: @user) && nil rescue $! } # rubocop:disable Style/RescueModifier
    assert_instance_of Penstock::AdminError, error
    assert_equal [:cluster_authorization_failed, 31], [error.code, error.number]
    assert_match(/may not describe the cluster/, error.message)
  end

  def test_rights_on_settings_follow_acls
    created(Acl.new(topic: topic = new_topic, principal: STRANGER, operation: :describe_configs))
    one = stranger
    eventually { one.topic_config(topic).any? rescue nil } # rubocop:disable Style/RescueModifier
    results = one.alter_configs({ topics: { topic => { "flush.ms" => 7_000 } } })
    assert_equal [:topic_authorization_failed], results.errors.values.map(&:code)
  end
end
