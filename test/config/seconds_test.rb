# frozen_string_literal: true

require_relative "../test_helper"

# Timeouts in seconds: a value that looks like milliseconds is an error, but long waits are possible.
class SecondsTest < PenstockTest
  def setup
    super
    needs_connection_pool
  end

  def each_call
    one = unreachable_producer
    yield(->(timeout) { one.flush(timeout:) })
    yield(->(timeout) { one.close(timeout:) })
    consumer = Penstock::Consumer.new { |config| config.kafka = { "bootstrap.servers": "127.0.0.1:1" } }
    yield(->(timeout) { consumer.close(timeout:) })
    pool = Penstock::ConnectionPool.new { |config| config.kafka = { "bootstrap.servers": "127.0.0.1:1" } }
    yield(->(timeout) { pool.reload(timeout:) })
    yield(->(timeout) { pool.shutdown(timeout:) })
  ensure
    consumer&.close
    pool&.shutdown
  end

  def test_an_integer_above_an_hour_raises_as_likely_milliseconds
    each_call do |call|
      error = assert_raises(ArgumentError) { call.call(30_000) }
      assert_match(/30000 seconds: did you mean milliseconds \(timeout: 30\.0\)\?.*timeout: 30000\.0/, error.message)
      assert_raises(ArgumentError) { call.call(3_601) }
    end
  end

  # WaterDrop's timeout of the same name is in milliseconds.
  # behaviour: connection pool
  def test_a_pools_timeout_above_a_minute_raises_as_likely_milliseconds
    [Penstock::ConnectionPool.method(:new), Penstock::ConnectionPool.method(:setup)].each do |make|
      error = assert_raises(ArgumentError) { make.call(timeout: 5_000) { flunk } }
      assert_equal "a timeout of 5000 seconds: did you mean milliseconds (timeout: 5.0)? For more than 60 seconds, give a " \
                   "Float (timeout: 5000.0)", error.message
      assert_raises(ArgumentError) { make.call(timeout: 61) { flunk } }
      ["5", Float::NAN, nil, -1].each { |timeout| assert_raises(ArgumentError) { make.call(timeout:) { flunk } } }
      [0, 60, 61.0, 1r, Duration.new(300)].each { |timeout| make.call(timeout:) { flunk }.shutdown }
    end
  ensure
    Penstock::ConnectionPool.shutdown
  end

  def test_longer_waits_are_given_as_a_float_or_nil
    [3_600, 7_200.0, 86_400r, nil].each do |timeout|
      each_call { |call| call.call(timeout) }
    end
  end

  def test_an_invalid_number_of_seconds_is_an_argument_error
    each_call do |call|
      [-1, "5", Float::NAN, 1i, :soon].each { |timeout| assert_raises(ArgumentError) { call.call(timeout) } }
    end
  end

  # Defaults from settings, which are in milliseconds and may be longer than an hour.
  def test_default_timeouts_may_be_longer
    one = unreachable_producer do |config|
      config.max_wait_timeout = 7_200_000
      config.close_timeout = 7_200_000
    end
    assert one.flush
    one.close
  end

  # Behaves like ActiveSupport's.
  class Duration < Numeric
    def initialize(seconds) # rubocop:disable Lint/MissingSuper -- Numeric has none
      @seconds = seconds
    end

    def is_a?(type) = super || @seconds.is_a?(type)
    def respond_to_missing?(name, all) = @seconds.respond_to?(name, all)
    def method_missing(name, ...) = respond_to_missing?(name, false) ? @seconds.public_send(name, ...) : super
    def to_f = @seconds.to_f
    def <=>(other) = @seconds <=> other
    def inspect = "#{@seconds} seconds"
  end

  def test_a_duration_is_a_valid_timeout_and_an_invalid_setting_in_milliseconds
    [3, 7_200].each { |seconds| each_call { |call| call.call(Duration.new(seconds)) } }
    each_call { |call| assert_raises(ArgumentError) { call.call(Duration.new(-1)) } }
    %i[unreachable_timeout close_timeout max_wait_timeout rejection_timeout idle_disconnect_timeout].each do |name|
      error = assert_raises(Penstock::ConfigurationInvalidError) do
        unreachable_producer { |config| config.public_send(:"#{name}=", Duration.new(30_000)) }
      end
      assert_match(/config\.#{name} must be .*Integer.*, not 30000 seconds/, error.message)
    end
    assert_raises(Penstock::VariantInvalidError) { unreachable_producer.with(max_wait_timeout: Duration.new(3)) }
  end
end
