# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/blocking_calls"
require_relative "../support/consumer_test_case"
require_relative "../support/public_api"
require_relative "../support/valid_arguments"

# Timeouts are keywords, in seconds. An unknown keyword raises an error that shows how the method is called.
class KeywordsTest < ConsumerTestCase
  def teardown
    @unreachable&.close(timeout: 0)
    super
  end

  def handle
    @unreachable ||= unreachable_producer
    @handle ||= @unreachable.produce_async(topic: "test", payload: "x")
  end

  def one = @one ||= unreachable_consumer("group.id": "g")

  def dummy_handle
    @dummy_handle ||= producer_of(Penstock::Clients::Dummy).produce_async(topic: "test", payload: "x")
  end

  def producer_of(client_class)
    unreachable_producer { |config| config.client_class = client_class }
  end

  def of_producer = handle && @unreachable
  def of_admin = @of_admin ||= Penstock::Admin.new("bootstrap.servers": "127.0.0.1:1")

  IN_C = %i[poll poll_batch wait await_all].freeze # their parameters are not visible in Ruby
  SURPLUS = %i[more given].freeze # the names of parameters that take surplus arguments

  # @return [Array<Symbol>] requests that this librdkafka does not have
  def impossible = BlockingCalls::ADMIN.reject(&:possible?).map { |call| call.name.delete_prefix("Admin#").to_sym }

  # Every public method of these objects that has a timeout.
  # @yieldparam call [Proc] calls it with valid arguments, and further ones
  # @yieldparam name [Symbol]
  # @yieldparam method [Method]
  def each_call
    [one, of_admin, handle, dummy_handle, of_producer, Penstock::ConsumerSet.new, Penstock::Consumer,
     Penstock::DeliveryHandle].each do |object|
      methods = object.is_a?(Module) ? PublicApi.methods_of(object, :singleton) : PublicApi.methods_of(object.class, :instance)
      (methods.keys - [:transaction] - impossible).each do |name|
        next unless IN_C.include?(name) || object.method(name).parameters.include?(%i[key timeout])

        yield ->(*also, **more) { ValidArguments.call(object, name, *also, **more) { nil } }, name, object.method(name)
      end
    end
  end

  def test_every_class_with_keywords_names_the_nearest_valid_keyword
    made = PublicApi.constants.values.grep(Class).select do |type|
      parameters = type.instance_method(:initialize).parameters
      !(type < Struct) && parameters.include?(%i[keyrest wrong]) && !parameters.assoc(:keyreq)
    end
    refute_empty made
    made.each do |type|
      required = type.instance_method(:initialize).parameters.count { |kind, _| kind == :req }
      assert_match(/\Aunknown keyword: :elephants; write new\(/, message_of { type.new(*[nil] * required, elephants: 1) }, type)
    end
  end

  def test_methods_with_a_first_argument_name_the_nearest_valid_keyword
    form = "new(logger, log_messages: true, levels: {})"
    assert_equal "unknown keyword: :level (did you mean :levels?); write #{form}",
                 message_of { Penstock::Listeners::Logger.new(::Logger.new(nil), level: {}) }
    assert_match(/positional argument too many; write #{Regexp.escape(form)}/,
                 message_of { Penstock::Listeners::Logger.new(::Logger.new(nil), true) })
    dummy = producer_of(Penstock::Clients::Dummy).client
    assert_match(/:time \(did you mean :times\?\); write fail_next/, message_of { dummy.fail_next(:fatal, time: 1) })
    [Penstock::Error, Penstock::ProduceManyError].each do |error|
      assert_match(/:cod \(did you mean :code\?\)/, message_of { error.new("mine", cod: :fatal) })
    end
  end

  # The public methods of each owner.
  def methods_with_keywords
    owners = [Penstock, Penstock::Listeners, Penstock::Clients, Penstock::Admin].flat_map do |room|
      room.constants.map { |name| room.const_get(name) }.grep(Module)
    end
    owners.uniq.flat_map { |owner| methods_of(owner) }.select do |method|
      method.source_location.to_a.first.to_s.include?("/lib/penstock/") && method.parameters.assoc(:key)
    end
  end

  def methods_of(owner)
    names = owner.public_instance_methods(false) + owner.private_instance_methods(false).grep(:initialize)
    names.map { |name| owner.instance_method(name) } + owner.singleton_methods(false).map { |name| owner.method(name) }
  end

  # Structs that an admin client's calls return.
  def made_by_calls?(method) = method.owner.is_a?(Class) && method.owner < Struct

  def test_every_method_with_keywords_has_the_hint
    found = methods_with_keywords
    refute_empty found
    without = found.reject { |method| method.parameters.assoc(:keyrest) || made_by_calls?(method) }
    assert_empty without.map { |method| "#{method.owner}##{method.name} #{method.source_location.join(":")}" }
  end

  def test_a_cluster_and_a_pool_name_the_nearest_valid_keyword
    needs_connection_pool
    assert_match(/:partition \(did you mean :partitions\?\)/, message_of { embedded_cluster.create_topic("test", partition: 3) })
    pool = Penstock::ConnectionPool.new { flunk }
    %i[reload shutdown close].each do |name|
      assert_match(/did you mean :timeout/, message_of { pool.public_send(name, timout: 1) })
    end
  ensure
    pool&.shutdown
  end

  def message_of(name = "", &call) = assert_raises(ArgumentError, name.to_s, &call).message

  def test_a_positional_timeout_shows_the_right_form
    each_call do |call, name, method|
      next unless IN_C.include?(name) || SURPLUS.include?(method.parameters.to_h[:rest])

      assert_match(/\A1 positional argument too many; write \w+!?\(/, message_of(name) { call.call(1_000) })
    end
    assert_equal "2 positional arguments too many; write poll_batch(max: 100, timeout: 1)",
                 message_of { one.poll_batch(10, 100) }
    assert_equal "1 positional argument too many; write poll(timeout: 1)", message_of { one.poll({ timeout: 1 }) }
  end

  def test_a_wrong_keyword_names_the_nearest_valid_keyword
    each_call do |call, name, *|
      nearest = message_of(name) { call.call(timout: 1) }
      assert_match(/\Aunknown keyword: :timout \(did you mean :timeout\?\); write \w+!?\(/, nearest)
      assert_match(/\Aunknown keyword: :elephants; write \w+!?\(/, message_of(name) { call.call(elephants: 1) })
    end
    assert_match(/unknown keyword: :timeout_ms \(did you mean :timeout\?\)/, message_of { one.poll(timeout: 1, timeout_ms: 1) })
    assert_match(/unknown keyword: :maxx \(did you mean :max\?\)/, message_of { one.poll_batch(maxx: 1) })
  end

  def test_a_topic_in_place_of_a_keyword_shows_the_braces
    assert_equal "unknown keyword: \"test\"; write commit({ \"topic\" => { 0 => 5 } }, async: false, timeout: 30)",
                 message_of { one.commit("test" => { 0 => 1 }) }
  end

  def test_a_missing_argument_is_rubys_own_argument_error
    assert_match(/given 0, expected 1/, message_of { Penstock::DeliveryHandle.await_all })
    assert_match(/given 0, expected 1/, message_of { Penstock::DeliveryHandle.await_all(timeout: 1) })
  end

  def test_every_timeout_is_in_seconds
    each_call do |call, name, _|
      assert_match(/5000 seconds: did you mean milliseconds \(timeout: 5\.0\)/, message_of(name) { call.call(timeout: 5_000) })
      [-1, -0.5, "1", Float::NAN, 1i, Object.new].each do |timeout|
        assert_match(/number of seconds/, message_of(name) { call.call(timeout:) })
      end
    end
  end

  slow def test_a_wait_ends_after_its_seconds
    [0.2, 0.2r, BigDecimalLike.new(0.2)].each do |timeout|
      took = seconds_of { assert_nil one.poll(timeout:) }
      assert_took(0.2..5, took)
      took = seconds_of { assert_raises(Penstock::WaitTimeoutError) { handle.wait(timeout:) } }
      assert_took(0.2..5, took)
    end
  end

  class BigDecimalLike < Numeric
    def initialize(value) # rubocop:disable Lint/MissingSuper -- Numeric has none
      @value = value
    end

    def to_f = @value
    def real? = true
  end

  def test_a_timeout_error_gives_the_time_in_the_callers_unit
    error = assert_raises(Penstock::WaitTimeoutError) { handle.wait(timeout: 0.01) }
    assert_match(/No delivery result within 0\.01 s:/, error.message)
    error = assert_raises(Penstock::WaitTimeoutError) { handle.wait(max_wait_timeout_ms: 10) }
    assert_match(/No delivery result within 10 ms:/, error.message)
  end

  def test_waterdrops_keyword_is_in_milliseconds_and_excludes_timeout
    [10, 0.5, 0].each { |limit| assert_raises(Penstock::WaitTimeoutError) { handle.wait(max_wait_timeout_ms: limit) } }
    assert_match(/not both/, message_of { handle.wait(timeout: 1, max_wait_timeout_ms: 1_000) })
    assert dummy_handle.wait(max_wait_timeout_ms: 5_000).delivered?
    assert dummy_handle.wait(timeout: nil).delivered?
  end
end
