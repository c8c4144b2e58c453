# frozen_string_literal: true

require_relative "../test_helper"

# SCRAM users: what calls reject before anything is sent.
class AdminScramTest < Minitest::Test
  PASSWORD = "correct horse battery staple"
  GOOD = { mechanism: :"SCRAM-SHA-256", password: PASSWORD }.freeze

  def setup
    @admin = Penstock::Admin.new("bootstrap.servers": "127.0.0.1:1", log_level: 0)
  end

  def teardown
    assert_equal :configured, @admin.state, "something was sent"
    @admin.close
  end

  def rejected(pattern, &block)
    error = assert_raises(ArgumentError, &block)
    assert_match(pattern, error.message)
    refute_match(/#{PASSWORD}/o, error.full_message(highlight: false).lines.first)
  end

  def upsert(spec, name = "u") = @admin.alter_scram_users(upsert: { name => spec })

  def test_names_that_no_user_has_are_rejected
    rejected(/name of a user must be a non-empty UTF-8 String without a zero byte, not :a/) { @admin.scram_users(:a) }
    rejected(/name of a user must be .*, not ""/) { upsert(GOOD, "") }
    rejected(/name of a user must be .*, not "a\\u0000"/) { @admin.alter_scram_users(delete: { "a\0" => :"SCRAM-SHA-256" }) }
    rejected(/name of a user "a" is given twice/) { @admin.scram_users("a", "a", "a") }
  end

  def test_calls_of_the_wrong_form_are_rejected
    rejected(/unknown keyword: :upserts \(did you mean :upsert\?\)/) { @admin.alter_scram_users(upserts: {}) }
    rejected(/1 positional argument too many/) { @admin.alter_scram_users({ "u" => GOOD }) }
    rejected(/upsert must be a Hash, not Array/) { @admin.alter_scram_users(upsert: [PASSWORD]) }
    rejected(/delete must be a Hash, not Array/) { @admin.alter_scram_users(delete: ["u"]) }
  end

  def test_wrong_specifications_are_rejected_and_not_shown
    rejected(/user "u" must have a Hash, not String/) { upsert(PASSWORD) }
    rejected(/user "u": nothing to upsert is given/) { upsert([]) }
    rejected(/user "u": unknown key :pasword \(did you mean :password\?\)/) { upsert({ pasword: PASSWORD }) }
    rejected(/user "u": unknown key; known are mechanism, password, iterations/) { upsert({ PASSWORD => 1 }) }
    rejected(/user "u": the mechanism must be :"SCRAM-SHA-256" or :"SCRAM-SHA-512"/) { upsert({ **GOOD, mechanism: PASSWORD }) }
    rejected(/the mechanism must be/) { @admin.alter_scram_users(delete: { "u" => :PLAIN }) }
    rejected(/user "u": iterations must be an Integer above 0/) { upsert({ **GOOD, iterations: 0 }) }
    rejected(/iterations must be/) { upsert({ **GOOD, iterations: "8192" }) }
    [nil, "", Penstock::Secret.new(""), :"#{PASSWORD}", "#{PASSWORD}\0", "#{PASSWORD}\xff", Penstock::Secret.new("#{PASSWORD}\0")]
      .each { |password| rejected(/user "u": the password must be non-empty UTF-8/) { upsert({ **GOOD, password: }) } }
  end

  def test_a_mechanism_of_a_user_is_changed_once
    rejected(/user "u": SCRAM-SHA-256 is given twice/) { upsert([GOOD, { **GOOD, mechanism: "SCRAM-SHA-256" }]) }
    rejected(/user "u": SCRAM-SHA-256 is given twice/) do
      @admin.alter_scram_users(upsert: { "u" => GOOD }, delete: { "u" => %i[SCRAM-SHA-512 SCRAM-SHA-256] })
    end
  end

  def test_passwords_are_secrets_at_once
    rows = Penstock::Admin.const_get(:ScramChanges).rows({ "u" => GOOD }, {})
    assert_equal [["u", 1, 8192, Penstock::Secret.new(PASSWORD)]], rows
    refute_match(/#{PASSWORD}/o, rows.inspect)
  end

  def test_each_request_has_one_change_of_a_user
    changes = Penstock::Admin.const_get(:ScramChanges)
    assert_equal [[%w[a 1], %w[b 1]], [%w[a 2]]], changes.rounds([%w[a 1], %w[a 2], %w[b 1]])
    assert_empty changes.rounds([])
  end

  def test_old_librdkafkas_are_unsupported
    return if Internal.of(@admin).instance_variable_get(:@client).respond_to?(:alter_scram_users)

    [-> { @admin.scram_users }, -> { upsert(GOOD) }].each do |call|
      error = assert_raises(Penstock::UnsupportedError, &call)
      assert_match(/cannot (describe|alter) SCRAM users.*2\.2\.0 or newer/, error.message)
    end
  end
end
