# frozen_string_literal: true

require_relative "test_helper"
require_relative "support/consumer_test_case"

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

  CONSUMER = {
    "poll" => [->(one, *more, **given) { one.poll(*more, **given) }, "poll(timeout: 1)"],
    "poll_batch" => [->(one, *more, **given) { one.poll_batch(*more, **given) }, "poll_batch(max: 100, timeout: 1)"],
    "each" => [->(one, *more, **given) { one.each(*more, **given) {} }, "each(timeout: 1) { |message| ... }"],
    "commit" => [->(one, *more, **given) { one.commit({ "test" => { 0 => 1 } }, *more, **given) },
                 "commit(message, async: false, timeout: 30)"],
    "committed" => [->(one, *more, **given) { one.committed("test", 0, *more, **given) },
                    "committed(topic, partitions, timeout: 5)"],
    "watermarks" => [->(one, *more, **given) { one.watermarks("test", 0, *more, **given) },
                     "watermarks(topic, partition, timeout: 5)"],
    "lag" => [->(one, *more, **given) { one.lag({ "test" => [0] }, *more, **given) },
              "lag({ \"topic\" => [0] }, estimate: false, timeout: 5)"],
    "assign" => [->(one, *more, **given) { one.assign({ "test" => [0] }, *more, **given) },
                 "assign({ \"topic\" => [0] }, timeout: 5)"],
    "offsets_for_times" => [->(one, *more, **given) { one.offsets_for_times("test", 0, 0, *more, **given) },
                            "offsets_for_times(topic, partitions, time, timeout: 5)"],
    "select" => [->(one, *more, **given) { one.class.select([one], *more, **given) }, "select(consumers, timeout: 1)"],
    "seek" => [->(one, *more, **given) { one.seek("test", 0, 0, *more, **given) },
               "seek(topic, partition, offset, timeout: 5)"],
    "rewind" => [->(one, *more, **given) { one.rewind(Penstock::Message.new(topic: "test"), *more, **given) },
                 "rewind(batch, timeout: 5)"]
  }.freeze

  HANDLE = {
    "wait" => [->(handle, *more, **given) { handle.wait(*more, **given) }, "wait(timeout: 180)"],
    "await_all" => [->(handle, *more, **given) { handle.class.await_all([handle], *more, **given) },
                    "await_all(handles, timeout: 180)"]
  }.freeze

  def each_one
    CONSUMER.each_value { |call, form| yield ->(*more, **given) { call.call(one, *more, **given) }, form }
    ADMIN.each_value { |call, form| yield ->(*more, **given) { call.call(of_admin, *more, **given) }, form }
    HANDLE.each_value do |call, form|
      [handle, dummy_handle].each { |made| yield ->(*more, **given) { call.call(made, *more, **given) }, form }
    end
  end

  def dummy_handle
    @dummy_handle ||= producer_of(Penstock::Clients::Dummy).produce_async(topic: "test", payload: "x")
  end

  def producer_of(client_class)
    unreachable_producer { |config| config.client_class = client_class }
  end

  ADMIN = {
    "create_topic" => [->(one, *more, **given) { one.create_topic("test", *more, **given) },
                       "create_topic(\"events\", partitions: 6)"],
    "create_topics" => [->(one, *more, **given) { one.create_topics({}, *more, **given) },
                        "create_topics({ \"events\" => { partitions: 6 } })"],
    "create_partitions" => [->(one, *more, **given) { one.create_partitions({}, *more, **given) },
                            "create_partitions({ \"events\" => 12 })"],
    "topic" => [->(one, *more, **given) { one.topic("test", *more, **given) }, "topic(\"events\")"],
    "cluster" => [->(one, *more, **given) { one.cluster(*more, **given) }, "cluster(timeout: 10)"],
    "close" => [->(one, *more, **given) { one.close(*more, **given) }, "close(timeout: 10)"]
  }.freeze

  # Where each method is, how it is called, and a keyword with a typing error.
  OTHERS = {
    "flush(timeout: 5)" => %i[of_producer flush tiemout],
    "close(timeout: 30)" => %i[of_producer close tiemout],
    "close!(timeout: 30)" => %i[of_producer close! timeout_ms],
    "with(max_wait_timeout: 5_000, topic_config: { acks: 1 })" => %i[of_producer with topic_configs],
    "close(timeout: 10)" => %i[of_consumer close time_out],
    "wait(timeout: 1)" => %i[of_set wait tiemout],
    "each_batch(max: 100) { |consumer, batch| ... }" => %i[of_set each_batch maxx],
    "new(size: 5, timeout: 5) { |config| ... }" => %i[pools new sizes],
    "setup(size: 5, timeout: 5) { |config| ... }" => %i[pools setup timeouts],
    "shutdown(timeout: 30)" => %i[pools shutdown timeouts],
    "new(brokers: 1)" => %i[clusters new broker],
    "new(topic: \"orders\", payload: \"...\")" => %i[messages new paylod],
    "set_round_trip_time(seconds: 0.3, broker: 1)" => %i[cluster set_round_trip_time second],
    "new(host: \"127.0.0.1\", port: 8125)" => %i[statsd new hots],
    "new(namespace: \"penstock\", labels: {}, topics: 0, max_closed: 100)" => %i[prometheus new topic],
    "new(tracer_provider: nil, meter_provider: nil, keys: true)" => %i[telemetry new key],
    "new(above: Penstock.monitor)" => %i[monitors new abov],
    "examine(servers: [\"kafka:9092\"], settings: {}, timeout: 5)" => %i[doctor examine server]
  }.freeze

  def of_producer = handle && @unreachable
  def of_consumer = one
  def of_admin = @of_admin ||= Penstock::Admin.new("bootstrap.servers": "127.0.0.1:1")
  def of_set = Penstock::ConsumerSet.new
  def pools = Penstock::ConnectionPool
  def clusters = Penstock::EmbeddedCluster
  def messages = Penstock::Message
  def cluster = embedded_cluster
  def statsd = Penstock::Listeners::Statsd
  def prometheus = Penstock::Listeners::Prometheus
  def telemetry = Penstock::OpenTelemetry
  def monitors = Penstock::Monitor
  def doctor = Penstock::Doctor

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
    assert_operator found.size, :>, 30
    without = found.reject { |method| method.parameters.assoc(:keyrest) || made_by_calls?(method) }
    assert_empty without.map { |method| "#{method.owner}##{method.name} #{method.source_location.join(":")}" }
  end

  def test_every_other_method_with_keywords_names_the_nearest_valid_keyword
    OTHERS.each do |form, (owner, name, nearly)|
      nearest = message_of { send(owner).public_send(name, nearly => 1) }
      assert_match(/\Aunknown keyword: #{nearly.inspect} \(did you mean :\w+\?\); write /, nearest)
      assert nearest.end_with?("; write #{form}"), nearest
      assert_equal "1 positional argument too many; write #{form}", message_of { send(owner).public_send(name, 5) }
    end
    refute_predicate of_producer, :closed?
  end

  def test_a_cluster_and_a_pool_name_the_nearest_valid_keyword
    needs_connection_pool
    assert_match(/:partition \(did you mean :partitions\?\)/, message_of { cluster.create_topic("test", partition: 3) })
    pool = pools.new { flunk }
    %i[reload shutdown close].each do |name|
      assert_match(/did you mean :timeout/, message_of { pool.public_send(name, timout: 1) })
    end
  ensure
    pool&.shutdown
  end

  def test_methods_of_an_admin_client_for_any_number_of_names_name_the_nearest_valid_keyword
    %i[topics delete_topics].each do |name|
      assert_equal "unknown keyword: :tiemout (did you mean :timeout?); write #{name}(\"events\")",
                   message_of { of_admin.public_send(name, "test", tiemout: 1) }
    end
  end

  def message_of(&call) = assert_raises(ArgumentError, &call).message

  def test_a_positional_timeout_shows_the_right_form
    each_one do |call, form|
      assert_equal "1 positional argument too many; write #{form}", message_of { call.call(1_000) }
    end
    assert_equal "2 positional arguments too many; write poll_batch(max: 100, timeout: 1)",
                 message_of { one.poll_batch(10, 100) }
    assert_equal "1 positional argument too many; write poll(timeout: 1)", message_of { one.poll({ timeout: 1 }) }
  end

  def test_a_wrong_keyword_names_the_nearest_valid_keyword
    each_one do |call, form|
      assert_equal "unknown keyword: :timout (did you mean :timeout?); write #{form}", message_of { call.call(timout: 1) }
      assert_equal "unknown keyword: :timeout_ms (did you mean :timeout?); write #{form}",
                   message_of { call.call(timeout: 1, timeout_ms: 1) }
      assert_equal "unknown keyword: :elephants; write #{form}", message_of { call.call(elephants: 1) }
    end
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
    each_one do |call, _|
      assert_match(/5000 seconds: did you mean milliseconds \(timeout: 5\.0\)/, message_of { call.call(timeout: 5_000) })
      [-1, -0.5, "1", Float::NAN, 1i, Object.new].each do |timeout|
        assert_match(/number of seconds/, message_of { call.call(timeout:) })
      end
    end
  end

  def test_a_wait_ends_after_its_seconds
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
