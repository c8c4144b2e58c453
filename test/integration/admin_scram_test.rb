# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/real_admin"

# SCRAM users, on a real Apache Kafka.
class KafkaAdminScramTest < Minitest::Test
  include RealAdmin

  PASSWORD = "correct horse bättery staple"
  SHA256, SHA512 = %i[SCRAM-SHA-256 SCRAM-SHA-512].freeze

  def setup
    skip "needs librdkafka 2.2.0" unless Gem::Version.new(Penstock.librdkafka_version) >= Gem::Version.new("2.2.0")
    super
    @one, @two = Array.new(2) { unique("user") }
  end

  def teardown
    [SHA256, SHA512].each { |mechanism| @admin&.alter_scram_users(delete: { @one => mechanism, @two => mechanism }) }
    @admin&.delete_acls({ principal: STRANGER }, { principal: "User:*", cluster: true })
    super if @admin
  end

  def upsert(name) = @admin.alter_scram_users(upsert: { name => { mechanism: SHA256, password: PASSWORD } }).raise!

  def known(*names) = @admin.scram_users(*names).ok.transform_values { |all| all.to_h { |one| [one.mechanism, one.iterations] } }

  def test_users_are_made_described_and_deleted
    results = @admin.alter_scram_users(
      upsert: { @one => { mechanism: SHA256, password: PASSWORD, iterations: 5000 },
                @two => [{ mechanism: SHA256, password: Penstock::Secret.new(PASSWORD) },
                         { mechanism: SHA512, password: PASSWORD, iterations: 4096 }] }
    )
    assert_equal({ @one => true, @two => true }, results.to_h)
    wanted = { @one => { SHA256 => 5000 }, @two => { SHA256 => 8192, SHA512 => 4096 } }
    eventually { known(@one, @two) == wanted }
    assert_equal wanted, known.slice(@one, @two)
    assert_equal [@one], @admin.scram_users(@one)[@one].map(&:user)
    assert Ractor.shareable?(@admin.scram_users(@one))

    assert_predicate @admin.alter_scram_users(upsert: { @one => { mechanism: SHA256, password: "another" } },
                                              delete: { @two => SHA256 }), :ok?
    eventually { known(@one, @two) == { @one => { SHA256 => 8192 }, @two => { SHA512 => 4096 } } }
  end

  def test_a_user_logs_in_with_the_password
    upsert(@one)
    settings = SecureKafka::LOGIN.merge("bootstrap.servers": SecureKafka::SASL, "sasl.mechanism": "SCRAM-SHA-256",
                                        "sasl.username": @one, log_level: 0)
    eventually { admin(**settings, "sasl.password": PASSWORD).cluster(timeout: 5) rescue nil } # rubocop:disable Style/RescueModifier
    one = admin(**settings, "sasl.password": "wrong") { |config| config.rejection_timeout = 100 }
    assert_raises(Penstock::AuthenticationError) { one.cluster }
  end

  def test_each_user_is_changed_or_has_an_error
    results = @admin.alter_scram_users(upsert: { @one => { mechanism: SHA256, password: PASSWORD, iterations: 1 } },
                                       delete: { @two => SHA512 })
    assert_equal({ @one => :unacceptable_credential, @two => :resource_not_found }, results.errors.transform_values(&:code))
    refute_match(/#{PASSWORD}/o, results.inspect)
    results = @admin.alter_scram_users(upsert: { @one => { mechanism: SHA256, password: PASSWORD } }, delete: { @two => SHA512 })
    assert_equal [[@one], [@two]], [results.ok.keys, results.errors.keys]
    eventually { known(@one) == { @one => { SHA256 => 8192 } } }
  end

  def test_the_second_change_of_a_user_is_not_made_if_the_first_fails
    spec = { password: PASSWORD, iterations: 4096 }
    results = @admin.alter_scram_users(
      upsert: { @one => [{ **spec, mechanism: SHA256, iterations: 1 }, { **spec, mechanism: SHA512 }],
                @two => [{ **spec, mechanism: SHA512 }, { **spec, mechanism: SHA256 }] }
    )
    assert_equal [[@one], [@two]], [results.errors.keys, results.ok.keys]
    eventually { known(@one, @two) == { @two => { SHA256 => 4096, SHA512 => 4096 } } }
    assert_predicate @admin.alter_scram_users(delete: { @two => [SHA256, SHA512] }), :ok?
    eventually { known(@one, @two).empty? }
  end

  def test_users_that_do_not_exist_are_errors_of_their_own
    upsert(@one)
    eventually { known(@one).any? }
    results = @admin.scram_users(@two, @one)
    assert_equal [@one], results.ok.keys
    error = results.errors.fetch(@two)
    assert_equal :resource_not_found, error.code
    assert_match(/does not exist: #{@two}: .*\(resource_not_found\) \[admin/, error.message)
  end

  def deny_stranger(operation)
    @admin.create_acls(Penstock::Admin::Acl.new(cluster: true, principal: "User:*", operation: :all),
                       Penstock::Admin::Acl.new(cluster: true, principal: STRANGER, operation:, permission: :deny)).raise!
    eventually { @admin.acls(principal: STRANGER, permission: :deny).any? }
    stranger
  end

  # librdkafka frees a part of its stack with such an answer (up to 2.14.2 at least).
  def test_a_client_that_may_not_describe_users_gets_an_error
    one = deny_stranger(:describe)
    error = eventually do
      one.scram_users
      nil
    rescue Penstock::AdminError => e
      e
    end
    assert_equal :cluster_authorization_failed, error.code
    assert_equal :cluster_authorization_failed, assert_raises(Penstock::AdminError) { one.scram_users(@one) }.code
  end

  def test_a_client_that_may_not_change_users_gets_errors
    one = deny_stranger(:alter)
    results = eventually do
      found = one.alter_scram_users(upsert: { @one => { mechanism: SHA256, password: PASSWORD } }, delete: { @two => SHA256 })
      found if found.errors.size == 2 && found.errors.values.none? { |error| error.code == :resource_not_found }
    end
    assert_equal [:cluster_authorization_failed], results.errors.values.map(&:code).uniq
    assert_equal [@one, @two], results.keys
    refute_match(/#{PASSWORD}/o, results.inspect)
  end
end
