# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/producer_test_case"
require_relative "../support/opentelemetry_stand_in"

class OpenTelemetryTest < ProducerTestCase
  MESSAGE = { topic: "events", payload: "hello", key: "user-1" }.freeze
  COMMON = { "messaging.system" => "kafka", "messaging.operation.name" => "send", "messaging.operation.type" => "send",
             "messaging.destination.name" => "events", "server.address" => "127.0.0.1", "server.port" => 1 }.freeze
  DURATION = "messaging.client.operation.duration"
  SENT = "messaging.client.sent.messages"

  def setup
    super
    OpenTelemetry.reset
    @telemetry = Penstock::OpenTelemetry.new
  end

  def traced(telemetry = @telemetry, servers: "127.0.0.1:1", **kafka)
    producer(servers:, **kafka) { |config| config.client_class = Penstock::Clients::Buffered }.around(telemetry)
  end

  def spans = OpenTelemetry.tracer_provider.spans

  def span
    assert_equal 1, spans.size
    assert_predicate spans[0], :finished?
    spans[0]
  end

  def recorded(name) = OpenTelemetry.meter_provider.recorded.fetch(name)

  def traceparent(span) = "00-#{span.context.hex_trace_id}-#{span.context.hex_span_id}-01"

  def headers(producer) = producer.client.messages.map { |message| message[:headers] }

  # The span's attributes besides COMMON.
  def more(span) = span.attributes.except(*COMMON.keys)

  # ---- spans ----

  # behaviour: OpenTelemetry
  def test_a_sync_message_makes_a_producer_span_with_the_messages_attributes
    report = traced.produce_sync(MESSAGE)
    assert_equal ["send events", :producer, nil, []], [span.name, span.kind, span.status, span.exceptions]
    assert_equal COMMON, span.attributes.slice(*COMMON.keys)
    expected = { "messaging.client.id" => "penstock", "messaging.message.body.size" => 5,
                 "messaging.kafka.message.key" => "user-1", "messaging.destination.partition.id" => report.partition.to_s,
                 "messaging.kafka.offset" => report.offset }
    assert_equal expected, more(span)
  end

  # Exporters accept only valid UTF-8. One invalid attribute costs them the whole batch of spans.
  def test_invalid_utf8_becomes_valid_attributes
    text = "a\xFF\e"
    one = traced
    one.around { |_| raise "no #{text}" }
    assert_raises(RuntimeError) { one.produce_sync(topic: text, payload: "x") }
    shown = [span.name, span.attributes["messaging.destination.name"], span.status.description]
    assert_equal ["send a\uFFFD\\x1B", "a\uFFFD\\x1B", "no a\uFFFD\\x1B"], shown
    assert_equal(["a\uFFFD\\x1B"], recorded(SENT).map { |_, attributes| attributes["messaging.destination.name"] })
  end

  def test_the_span_of_an_async_message_ends_when_the_queue_accepts_it
    handle = traced.produce_async(MESSAGE.merge(partition: 2))
    refute more(span).key?("messaging.kafka.offset")
    assert_equal "2", more(span)["messaging.destination.partition.id"]
    assert_predicate handle, :delivered?
  end

  # behaviour: OpenTelemetry
  def test_a_batch_is_one_span_and_each_message_carries_its_context
    producer = traced
    producer.produce_many_sync([MESSAGE] * 3)
    assert_equal "send events", span.name
    assert_equal({ "messaging.batch.message_count" => 3, "messaging.client.id" => "penstock" }, more(span))
    assert_equal [{ "traceparent" => traceparent(span) }] * 3, headers(producer)
  end

  def test_a_batch_for_several_topics_names_no_topic_in_the_span_but_counts_each
    traced.produce_many_async([MESSAGE, MESSAGE, { topic: :others, payload: nil }])
    assert_equal "send", span.name
    refute span.attributes.key?("messaging.destination.name")
    counts = recorded(SENT).to_h { |count, attributes| [attributes["messaging.destination.name"], count] }
    assert_equal({ "events" => 2, "others" => 1 }, counts)
  end

  def test_a_flush_and_a_tombstone_are_spans_too
    producer = traced
    producer.buffer(MESSAGE)
    assert_empty spans
    producer.flush_async
    assert_equal 1, span.attributes["messaging.batch.message_count"]
    producer.tombstone_sync({ topic: "events", key: "k", partition: 0 })
    tombstone = more(spans[1])
    assert_equal [true, nil], tombstone.values_at("messaging.kafka.message.tombstone", "messaging.message.body.size")
  end

  def test_the_span_is_a_child_of_the_current_one_and_current_during_the_send
    producer = traced
    inside = nil
    producer.around do |sending|
      inside = OpenTelemetry::Trace.current_span
      sending.call
    end
    parent = nil
    OpenTelemetry.tracer_provider.tracer.in_span("request") do |outer|
      parent = outer
      producer.produce_sync(MESSAGE)
      assert_same outer, OpenTelemetry::Trace.current_span
    end
    assert_same spans[1], inside
    assert_equal parent.context, spans[1].parent
    assert_nil OpenTelemetry::Trace.current_span
  end

  def test_a_key_that_is_binary_or_disabled_is_in_no_span
    producer = traced
    producer.produce_sync(MESSAGE.merge(key: "\xFF"))
    producer.produce_sync(MESSAGE.merge(key: "\u00e9".b))
    OpenTelemetry.meter_provider = OpenTelemetry::MeterProvider.new
    traced(Penstock::OpenTelemetry.new(keys: false)).produce_sync(MESSAGE)
    assert_equal([nil, "\u00e9", nil], spans.map { |span| span.attributes["messaging.kafka.message.key"] })
  end

  def test_the_span_names_the_server_if_there_is_exactly_one
    { "kafka.example:9093" => ["kafka.example", 9093], "kafka.example" => ["kafka.example", 9092],
      "[::1]:9093" => ["::1", 9093],
      "a:9092,b:9092" => [nil, nil], "a,b" => [nil, nil] }.each do |servers, expected|
      traced(servers:).produce_sync(MESSAGE)
      assert_equal expected, spans.last.attributes.values_at("server.address", "server.port"), servers
    end
  end

  def test_payloads_headers_and_labels_are_in_no_span
    traced.produce_sync(MESSAGE.merge(payload: "secret", headers: { "h" => "secret" }, label: "secret"))
    refute_includes span.attributes.to_s, "secret"
  end

  def test_other_providers_can_be_configured
    tracers = OpenTelemetry::TracerProvider.new
    meters = OpenTelemetry::MeterProvider.new
    traced(Penstock::OpenTelemetry.new(tracer_provider: tracers, meter_provider: meters)).produce_sync(MESSAGE)
    assert_equal [1, 0], [tracers.spans.size, spans.size]
    assert_equal [1, 0], [meters.recorded[SENT].size, recorded(SENT).size]
  end

  # ---- failures ----

  def test_a_failure_is_recorded_in_the_span_and_raised_to_the_caller
    producer = traced
    producer.client.fail_next(:msg_timed_out)
    error = assert_raises(Penstock::MessageTimedOutError) { producer.produce_sync(MESSAGE) }
    assert_equal [[error], error.message, "msg_timed_out"],
                 [span.exceptions, span.status.description, span.attributes["error.type"]]
    assert_equal "msg_timed_out", recorded(DURATION)[0][1]["error.type"]
    assert_equal [[1, COMMON.merge("error.type" => "msg_timed_out")]], recorded(SENT)
  end

  def test_each_message_of_a_partly_failed_batch_is_counted_with_its_result
    producer = traced
    producer.client.script { |message| { "1" => :msg_timed_out, "2" => :queue_full }[message[:payload]] }
    assert_raises(Penstock::ProduceManyError) do
      producer.produce_many_sync(Array.new(4) { |i| MESSAGE.merge(payload: i.to_s) })
    end
    counts = recorded(SENT).to_h { |count, attributes| [attributes["error.type"], count] }
    assert_equal({ nil => 1, "msg_timed_out" => 1, "queue_full" => 2 }, counts)
    assert_equal 1, recorded(DURATION).size
    assert_equal span.attributes["error.type"], recorded(DURATION)[0][1]["error.type"]
  end

  def test_error_type_is_the_class_of_errors_without_a_code_and_absent_for_a_throw
    producer = traced
    assert_raises(Penstock::MessageInvalidError) { producer.produce_sync(MESSAGE.merge(payload: 5)) }
    producer.client.script { raise NoMemoryError }
    assert_raises(NoMemoryError) { producer.produce_sync(MESSAGE) }
    producer.client.script { throw :away }
    catch(:away) { producer.produce_sync(MESSAGE) }
    assert_equal(%w[Penstock::MessageInvalidError NoMemoryError _OTHER], spans.map { |span| span.attributes["error.type"] })
    assert spans.all?(&:finished?)
  end

  # Parts of telemetry that may fail before anything is sent.
  BREAKS = {
    tracer: :break_tracer.to_proc,
    propagation: ->(_) { OpenTelemetry.propagation = Object.new }
  }.freeze

  def break_tracer
    tracer = @telemetry.instance_variable_get(:@tracer)
    def tracer.start_span(*) = raise(KeyError, "mine")
  end

  BREAKS.each do |name, breaking|
    define_method(:"test_a_failing_#{name}_does_not_prevent_the_send") do
      producer = traced
      breaking.call(self)
      assert_equal 0, producer.produce_sync(MESSAGE).offset
      assert_equal 1, OpenTelemetry.errors.size
      assert_equal 1, producer.client.messages.size
      assert spans.all?(&:finished?)
      producer.client.fail_next(:msg_timed_out)
      assert_raises(Penstock::MessageTimedOutError) { producer.produce_sync(MESSAGE) }
    end
  end

  def test_a_failure_after_the_send_is_an_event_and_the_caller_gets_the_report
    producer = traced
    errors = []
    producer.monitor.subscribe("error.occurred") { |event| errors << [event[:type], event[:hook], event[:error].message] }
    counter = @telemetry.instance_variable_get(:@sent)
    def counter.add(*, **) = raise(KeyError, "mine")
    assert_equal 0, producer.produce_sync(MESSAGE).offset
    assert_equal [["around.error", "Penstock::OpenTelemetry", "mine"]], errors
    assert_predicate span, :finished?
  end

  # ---- metrics ----

  def test_each_call_records_a_duration_and_each_message_is_counted
    producer = traced
    producer.produce_sync(MESSAGE)
    producer.produce_many_async([MESSAGE] * 3)
    durations = recorded(DURATION)
    assert_equal [COMMON, COMMON], durations.map(&:last)
    durations.map(&:first).each { |seconds| assert_includes 0.0..60.0, seconds }
    assert_equal [[1, COMMON], [3, COMMON]], recorded(SENT)
  end

  def test_metrics_are_off_without_their_api_or_when_disabled
    traced(Penstock::OpenTelemetry.new(meter_provider: false)).produce_sync(MESSAGE)
    assert_empty recorded(SENT)
    OpenTelemetry.meter_provider = nil
    traced(Penstock::OpenTelemetry.new).produce_sync(MESSAGE)
    assert_equal 2, spans.size
  end

  # ---- contexts in headers ----

  def test_the_context_is_in_the_headers_and_the_callers_hashes_stay_unchanged
    producer = traced
    message = MESSAGE.merge(headers: { "own" => "1" }.freeze).freeze
    [message, MESSAGE].each { |given| producer.produce_sync(given) }
    assert_equal [{ "own" => "1", "traceparent" => traceparent(spans[0]) }, { "traceparent" => traceparent(spans[1]) }],
                 headers(producer)
    assert_equal({ "own" => "1" }, message[:headers])
  end

  def test_a_message_with_a_context_keeps_it_and_the_others_of_its_batch_get_one
    producer = traced
    own = { "traceparent" => "of my own" }.freeze
    by_symbol = own.transform_keys(&:to_sym)
    producer.produce_many_sync([MESSAGE.merge(headers: own), MESSAGE, MESSAGE.merge(headers: by_symbol)])
    assert_equal [own, { "traceparent" => traceparent(span) }, by_symbol], headers(producer)
  end

  def test_invalid_headers_are_still_rejected
    assert_raises(Penstock::MessageInvalidError) { traced.produce_sync(MESSAGE.merge(headers: "text")) }
  end

  # behaviour: OpenTelemetry
  def test_a_consumer_continues_the_trace
    name = topic(partitions: 1)
    producer = self.producer.around(@telemetry)
    producer.produce_sync(MESSAGE.merge(topic: name))
    consumer = Penstock::Consumer.new { |config| config.kafka = { "bootstrap.servers": cluster.bootstrap_servers } }
    consumer.assign(name => { 0 => :beginning })
    message = consumer.poll(timeout: 20)
    context = @telemetry.extract(message)
    assert_equal span.context, OpenTelemetry::Trace.current_span(context).context
    OpenTelemetry::Context.with_current(context) { OpenTelemetry.tracer_provider.tracer.in_span("process") { nil } }
    assert_equal [span_ids(spans[0]), "process"], [span_ids(spans[1].parent), spans[1].name]
  ensure
    consumer&.close
  end

  # ---- processing ----

  # @return [Array] a consumer and what it reads of these, which were sent in calls of their own
  def consumed(*messages)
    name = topic(partitions: 1)
    producer = self.producer.around(@telemetry)
    messages.each { |message| producer.produce_sync(message.merge(topic: name)) }
    consumer = Penstock::Consumer.new("bootstrap.servers": cluster.bootstrap_servers, "group.id": "billing")
    consumer.assign(name => { 0 => :beginning })
    yield consumer
  ensure
    consumer&.close
  end

  # The length of the queue counts a mark for the partition too, so what is polled may lack a message: then it is read again.
  def batch_of(consumer, size)
    eventually do
      next if consumer.metrics.queue_length < size

      batch = consumer.poll_batch
      batch.size == size ? batch : consumer.rewind(batch) && nil
    end
  end

  def test_processing_a_message_continues_its_trace_and_links_to_its_span
    consumed(MESSAGE) do |consumer|
      message = consumer.poll(timeout: 20)
      value = @telemetry.process(message, consumer:) do |given|
        assert_same message, given
        assert_same spans[1], OpenTelemetry::Trace.current_span
        :done
      end
      sent, processed = spans
      assert_equal :done, value
      assert_equal ["process #{message.topic}", :consumer, true], [processed.name, processed.kind, processed.finished?]
      assert_equal [span_ids(sent)] * 2, [span_ids(processed.parent), span_ids(processed.links[0].span_context)]
      expected = { "messaging.operation.type" => "process", "messaging.consumer.group.name" => "billing",
                   "messaging.client.id" => "penstock", "messaging.message.body.size" => 5, "messaging.kafka.offset" => 0,
                   "messaging.destination.partition.id" => "0", "messaging.kafka.message.key" => "user-1" }
      assert_equal expected, processed.attributes.slice(*expected.keys)
      assert_equal 1, recorded("messaging.process.duration").size
      assert_equal [1], recorded("messaging.client.consumed.messages").map(&:first)
    end
  end

  def test_the_span_of_a_batch_links_to_every_span_that_sent_its_messages
    consumed(MESSAGE, MESSAGE, { payload: "x", headers: { "traceparent" => "broken" } }) do |consumer|
      batch = batch_of(consumer, 3)
      before = spans.first(2)
      @telemetry.process(batch) { |given| assert_same batch, given }
      processed = spans.last
      assert_equal(before.map { |span| span_ids(span) }, processed.links.map { |link| span_ids(link.span_context) })
      assert_equal [nil, 3], [processed.parent, processed.attributes["messaging.batch.message_count"]]
      assert_equal [3], recorded("messaging.client.consumed.messages").map(&:first)
    end
  end

  def test_an_error_in_processing_is_recorded_and_raised
    consumed(MESSAGE) do |consumer|
      message = consumer.poll(timeout: 20)
      error = assert_raises(KeyError) { @telemetry.process(message) { raise KeyError, "none" } }
      assert_equal [[error], "KeyError"], [spans.last.exceptions, spans.last.attributes["error.type"]]
      assert_predicate spans.last, :finished?
      assert_equal "KeyError", recorded("messaging.process.duration").last.last["error.type"]
    end
  end

  def test_processing_goes_on_without_telemetry_that_fails
    consumed(MESSAGE) do |consumer|
      message = consumer.poll(timeout: 20)
      OpenTelemetry.propagation = nil
      assert_equal :done, @telemetry.process(message) { :done }
      assert_equal 1, OpenTelemetry.errors.size
    end
  end

  def test_only_messages_and_batches_are_processed
    assert_raises(TypeError) { @telemetry.process({ topic: "a" }) { nil } }
  end

  def span_ids(span) = (span.respond_to?(:context) ? span.context : span).to_a

  Consumed = Struct.new(:headers)

  def test_the_last_of_several_contexts_wins_and_without_a_valid_one_the_current_stays
    first, last = %w[1 2].map { |digit| "00-#{digit * 32}-#{digit * 16}-01".b.freeze }
    context = @telemetry.extract(Consumed.new({ "traceparent" => [first, last].freeze }.freeze))
    assert_equal "2" * 32, OpenTelemetry::Trace.current_span(context).context.trace_id
    [{}, { "traceparent" => nil }, { "traceparent" => "\xFF".b }, { "traceparent" => [] }].each do |headers|
      assert_same OpenTelemetry::Context.current, @telemetry.extract(Consumed.new(headers))
    end
    assert_equal ["a"], Penstock::OpenTelemetry::Getter.keys({ "a" => "1" })
    assert_equal Encoding::UTF_8, Penstock::OpenTelemetry::Getter.get({ "a" => "1".b }, "a").encoding
  end

  def test_without_the_gem_the_error_says_what_is_missing
    output = ruby!("begin; Penstock::OpenTelemetry.new; rescue LoadError => e; puts e.message; end")
    skip "the gem is installed" if output.empty?
    assert_match(/\APenstock::OpenTelemetry requires the gem opentelemetry-api: .*opentelemetry-sdk/, output)
  end
end
