# frozen_string_literal: true

require "securerandom"
require_relative "secure_kafka"
require_relative "slowness"

# Admin clients of a real Kafka that was started with bin/kafka up --secure, closed after each test.
module RealAdmin
  def setup
    super
    @admins = []
    @topics = []
    @admin = admin
  end

  def teardown
    @admin.delete_topics(*@topics, wait: false) if @topics.any?
    @admins.each(&:close)
    super
  end

  # May do everything.
  def admin(**kafka, &block)
    Penstock::Admin.new("bootstrap.servers": SecureKafka::PLAINTEXT, **kafka, &block).tap { |made| @admins << made }
  end

  # The guest may do nothing with topics whose names begin with "read-only" or "hidden".
  def guest = admin("bootstrap.servers": SecureKafka::SASL, log_level: 0, **SecureKafka::AS_GUEST)

  # The user of the client's certificate. Tests make its ACLs.
  STRANGER = "User:CN=client"

  def stranger
    admin("bootstrap.servers": SecureKafka::MTLS, log_level: 0, **SecureKafka::TLS,
          "ssl.certificate.location": SecureKafka::CERT, "ssl.key.location": SecureKafka::KEY)
  end

  def unique(prefix = "penstock-admin") = "#{prefix}-#{SecureRandom.hex(6)}"

  def new_topic(prefix = "penstock-admin", partitions: 1, **spec)
    unique(prefix).tap do |name|
      @admin.create_topic(name, partitions:, **spec)
      @topics << name
    end
  end

  # Whether the linked librdkafka is this version or newer.
  def librdkafka?(version) = Gem::Version.new(Penstock.librdkafka_version) >= Gem::Version.new(version)

  # A broker learns of a change in the cluster's metadata some milliseconds after the answer.
  def eventually(seconds = 20, message = nil)
    deadline = Slowness.deadline(seconds)
    sleep 0.01 until (found = yield) || deadline.passed?
    assert found, message || "not true within #{deadline}"
    found
  end
end
