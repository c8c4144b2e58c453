# frozen_string_literal: true

require_relative "../test_helper"

class ErrorTest < PenstockTest
  # Each error is in exactly one of these groups, except the error that reports no failure.
  GROUPS = [Penstock::UsageError, Penstock::ConfigurationError, Penstock::ProduceError, Penstock::TransactionError,
            Penstock::ConsumeError, Penstock::AdminError, Penstock::ClusterError, Penstock::MessagePack::UnpackError].freeze
  # Only classes whose name begins with Penstock, because test files define subclasses too.
  def self.below(error) = error.subclasses.flat_map { |sub| [sub, *below(sub)] }
  CLASSES = [Penstock::Error, *below(Penstock::Error)].select { |error| error.name.to_s.start_with?("Penstock::") }.freeze

  # The error of a message that never found its broker. Made once, because it takes a while.
  def self.timed_out
    @timed_out ||= begin
      producer = Penstock::Producer.new do |config|
        config.id = "patient"
        config.kafka = { "bootstrap.servers": "127.0.0.1:1", log_level: 0, "message.timeout.ms": 100 }
      end
      handle = producer.produce_async(topic: "nowhere", payload: "", partition: 1)
      producer.flush(timeout: 20)
      handle.error.tap { producer.close }
    end
  end

  def timed_out = ErrorTest.timed_out

  # behaviour: all of them
  def test_every_error_is_a_penstock_error_and_a_standard_error
    assert_operator CLASSES.size, :>=, 11
    CLASSES.each { |error| assert_operator error, :<=, Penstock::Error }
    assert_operator Penstock::Error, :<, StandardError
  end

  # behaviour: all of them
  # behaviour: ProducerUsedInParentProcess
  def test_names_from_other_clients_are_aliases_of_the_same_classes
    Penstock.constants.map { |name| Penstock.const_get(name) }.grep(Class).select { |one| one <= Penstock::Error }.each do |one|
      assert_same one, Penstock::Errors.const_get(one.name.delete_prefix("Penstock::"))
    end
    assert_same Penstock::Error, Penstock::Errors::BaseError
    assert_same Penstock::ForkedError, Penstock::Errors::ProducerUsedInParentProcess
  end

  def test_every_error_is_in_exactly_one_group
    (CLASSES - [Penstock::Error, Penstock::AbortTransaction]).each do |error|
      assert_equal 1, GROUPS.count { |group| error <= group }, error.name
    end
    below = CLASSES.select { |error| error.superclass == Penstock::Error }
    assert_equal [*GROUPS, Penstock::AbortTransaction].sort_by(&:name), below.sort_by(&:name)
  end

  def test_connection_errors_can_be_rescued_together
    including = CLASSES.select { |error| error.include?(Penstock::ConnectionError) }
    assert_equal [Penstock::AdminUnreachableError, Penstock::AuthenticationError, Penstock::BrokerRejectedError,
                  Penstock::BrokersUnreachableError, Penstock::SecurityProtocolError, Penstock::TlsError],
                 including.sort_by(&:name)
    including.drop(1).each { |error| assert_operator error, :<, Penstock::ProduceError }
    assert_operator Penstock::AdminUnreachableError, :<, Penstock::AdminError
    assert_same Penstock::ConnectionError, Penstock::Errors::ConnectionError
  end

  # Other code that builds errors could give their messages another form.
  def test_only_the_factory_builds_errors
    names = CLASSES.map { |error| error.name.split("::").last }.join("|")
    elsewhere = Dir.glob("**/*.rb", base: folder = File.expand_path("../../lib/penstock", __dir__)).flat_map do |file|
      next [] if file == "errors/error_factory.rb" || file.match?(/\Acli\b/) # the CLI has its own UsageError

      File.readlines(File.join(folder, file)).grep_v(/\A *#/).grep(/\braise[ (](#{names})\b|\b(#{names})\.new\b/)
          .map { |line| "#{file}: #{line.strip}" }
    end
    assert_empty elsewhere
  end

  def test_every_message_from_the_factory_has_the_standard_form
    factory = Internal::ErrorFactory
    texts = [[Penstock::ConfigurationInvalidError, "config.kafka: acks is wrong"],
             [Penstock::MessageInvalidError, ":topic is missing"], [Penstock::ProducerClosedError, "the producer is closed."],
             [Penstock::HookError, "don't do that"], [Penstock::ClusterError, "127.0.0.1:1/bootstrap: failed"],
             [Penstock::MessageInvalidError, "librdkafka is full"], [Penstock::VariantInvalidError, "topic_config: no"]]
    made = texts.map { |error, text| factory.build(error, text, producer_id: "p", topic: "t").message }
    made.each { |message| assert_nil ErrorFormat.problem(message) }
    assert_equal ["Invalid configuration: config.kafka: acks is wrong [producer p, topic t].",
                  "Invalid message: :topic is missing [producer p, topic t]. Nothing was sent.",
                  "The producer is closed [producer p, topic t].", "Don't do that [producer p, topic t].",
                  "Reported by librdkafka: 127.0.0.1:1/bootstrap: failed [producer p, topic t]."], made.first(5)
  end

  def test_the_form_check_finds_a_message_of_another_form
    ["", "the end.", "The end", "The end. [producer a]", "The \xff.", "The end [producer a]. Or [topic b]."].each do |message|
      assert ErrorFormat.problem(message), message
    end
    assert_nil ErrorFormat.problem("The end [producer a, topic b]. Begin again.")
  end

  def test_a_program_can_create_errors_for_its_tests
    error = Penstock::QueueFullError.new("mine", code: :queue_full, retriable: true)
    assert_equal ["mine", :queue_full, true, nil], [error.message, error.code, error.retriable?, error.topic]
    many = Penstock::ProduceManyError.new("mine", dispatched: [:handle], code: :timed_out)
    assert_equal [[:handle], :timed_out], [many.dispatched, many.code]
    bare = Penstock::ProduceManyError.new
    assert_equal ["Penstock::ProduceManyError", []], [bare.message, bare.dispatched]
  end

  # behaviour: ProduceError
  def test_errors_about_a_message_are_produce_errors
    [Penstock::QueueFullError, Penstock::DeliveryError, Penstock::WaitTimeoutError, Penstock::ProduceManyError].each do |error|
      assert_operator error, :<, Penstock::ProduceError
    end
    assert_operator Penstock::MessageTimedOutError, :<, Penstock::DeliveryError
  end

  def test_timeouts_can_be_rescued_together
    including = CLASSES.select { |error| error.include?(Penstock::TimeoutError) }
    assert_equal %w[AdminTimeoutError ConsumeTimeoutError MessageTimedOutError TransactionTimedOutError WaitTimeoutError],
                 including.map { |error| error.name.delete_prefix("Penstock::") }.sort
  end

  # behaviour: ProduceError
  # behaviour: If the cluster or topic does not exist, the message fails
  slow def test_a_message_timeout_names_producer_topic_brokers_and_what_to_do
    error = timed_out
    ["producer patient", "topic nowhere", "partition 1", "127.0.0.1:1", "refused", "message.timeout.ms",
     "(msg_timed_out)"].each { |part| assert_includes error.message, part }
    assert_equal [:msg_timed_out, -192, "_MSG_TIMED_OUT", "patient", "nowhere", 1],
                 [error.code, error.number, error.name, error.producer_id, error.topic, error.partition]
  end

  slow def test_a_wait_timeout_names_producer_topic_and_brokers
    producer = unreachable_producer("message.timeout.ms": 500) { |config| config.max_wait_timeout = 100 }
    message = { topic: "nowhere", payload: "" }
    [-> { producer.produce_sync(message) }, -> { producer.produce_many_sync([message] * 2) }].each do |call|
      error = assert_raises(Penstock::WaitTimeoutError, &call)
      [producer.id, "nowhere", "127.0.0.1:1", "may be delivered later"].each { |part| assert_includes error.message, part }
      assert_equal [:timed_out, producer.id, "nowhere", false],
                   [error.code, error.producer_id, error.topic, error.retriable?]
    end
  end

  slow def test_a_batch_timeout_states_how_long_the_call_waited
    producer = unreachable_producer("message.timeout.ms": 500) { |config| config.max_wait_timeout = 123 }
    error = assert_raises(Penstock::WaitTimeoutError) { producer.produce_many_sync([{ topic: "nowhere", payload: "" }] * 2) }
    assert_includes error.message, "123 ms"
  end

  slow def test_a_flush_timeout_names_producer_brokers_and_the_number_of_messages
    producer = unreachable_producer("message.timeout.ms": 500)
    producer.produce_async(topic: "nowhere", payload: "")
    error = assert_raises(Penstock::WaitTimeoutError) { producer.flush(timeout: 0.05) }
    [producer.id, "1 message", "127.0.0.1:1"].each { |part| assert_includes error.message, part }
    assert_equal [:timed_out, producer.id], [error.code, error.producer_id]
  end

  def test_a_message_that_timed_out_before_sending_is_retriable_and_not_fatal
    error = timed_out
    assert_equal [true, false, false], [error.retriable?, error.fatal?, error.abortable?]
  end

  slow def test_no_error_message_is_empty
    producer = unreachable_producer("message.timeout.ms": 100, "queue.buffering.max.messages": 1) do |config|
      config.on_queue_full = :raise
    end
    closed = self.producer.tap(&:close)
    calls = [
      -> { producer.produce_sync({}) }, -> { producer.produce_sync(topic: "a", payload: "") },
      -> { Penstock::Producer.new { nil } },
      -> { producer.produce_many_async([{ topic: "a", payload: "" }] * 3) },
      -> { producer.produce_async(topic: "a", payload: "") },
      -> { closed.produce_async(topic: "a", payload: "") }, -> { producer.flush(timeout: 0) },
      -> { 2.times { embedded_cluster.create_topic("made-twice") } }
    ]
    errors = calls.map { |call| assert_raises(Penstock::Error, &call) }
    errors.each { |error| assert_match(/\A\p{Lu}.{15,}\.\z/m, error.message, error.class.name) }
    assert_equal 8, errors.map(&:class).uniq.size
  end

  def test_error_messages_are_utf8_even_if_they_quote_other_encodings
    producer = producer { |config| config.id = "prodücer" }
    errors = [{ topic: "grüße", payload: "" }, { topic: "a", payload: "", headers: { "ü" => 1 } }, {}].map do |message|
      assert_raises(Penstock::MessageInvalidError) { producer.produce_async(message) }
    end
    errors << assert_raises(Penstock::ProducerClosedError) { producer.tap(&:close).flush } << timed_out
    assert_equal [[Encoding::UTF_8, true]], errors.map { |error| [error.message.encoding, error.message.valid_encoding?] }.uniq
    %w[grüße ü topic prodücer].zip(errors) { |part, error| assert_includes error.message, part }
  end

  def test_the_description_of_a_code_is_in_the_message_once
    cause = [-190, "_UNKNOWN_PARTITION", "Local: Unknown partition"]
    [cause.last, "Unknown partition", "#{cause.last}: #{cause.last}", "no place: #{cause.last}", "#{cause.last}: no place",
     "no place (#{cause.last})"].each do |text|
      message = Internal::ErrorFactory.build_native(Penstock::ConsumeError, text, cause, [], nil, ["t", 1], [false] * 3).message
      assert_match(/\A(No place: )?Local: Unknown partition \(unknown_partition\) \[topic t, partition 1\]\. /, message)
      assert_equal 1, message.scan("Unknown partition").size
    end
  end

  def test_a_rejection_by_the_embedded_cluster_has_a_complete_message
    embedded_cluster.create_topic(name = "made-twice-#{rand(2**32)}")
    message = assert_raises(Penstock::Error) { embedded_cluster.create_topic(name) }.message
    refute_match(/: ?:|\(\)/, message)
  end

  def test_an_error_supports_pattern_matching
    case timed_out
    in Penstock::DeliveryError => error
      assert_pattern_of(error)
    end
  end

  def assert_pattern_of(error)
    case error
    in { code: :msg_timed_out, retriable: true, fatal: false, topic: String => topic, partition: 1, number: -192 }
      assert_equal "nowhere", topic
    end
    assert_equal %i[code number name producer_id topic partition fatal retriable abortable consumer_id admin_id offset group],
                 error.deconstruct_keys(nil).keys
  end

  def test_rescue_with_a_pattern_selects_by_code
    outcome = begin
      producer.tap(&:close).produce_async(topic: "a", payload: "")
    rescue Penstock::Error => e
      case e
      in { code: :queue_full } then :full
      in Penstock::ProducerClosedError then :closed
      end
    end
    assert_equal :closed, outcome
  end

  def test_use_after_close_names_the_producer
    producer = self.producer.tap(&:close)
    [-> { producer.produce_sync(topic: "a", payload: "") }, -> { producer.produce_many_async([{ topic: "a", payload: "" }]) },
     -> { producer.flush }, -> { producer.partition_count("a") }].each do |call|
      error = assert_raises(Penstock::ProducerClosedError, &call)
      assert_includes error.message, producer.id
      assert_equal producer.id, error.producer_id
    end
  end

  # behaviour: ProduceManyError
  slow def test_a_failed_batch_carries_its_handles_and_the_attributes_of_its_first_error
    producer = unreachable_producer("message.timeout.ms": 100)
    error = assert_raises(Penstock::ProduceManyError) do
      producer.produce_many_sync(Array.new(3) { |i| { topic: "nowhere", payload: "", label: i } })
    end
    assert_equal [0, 1, 2], error.dispatched.map(&:label)
    assert(error.dispatched.all? { |handle| handle.error.is_a?(Penstock::MessageTimedOutError) })
    assert_equal error.dispatched.first.error.deconstruct_keys(nil), error.deconstruct_keys(nil)
    assert_includes error.message, "Accepted 3 of 3 messages"
  end

  def test_an_error_can_be_marshalled
    error = timed_out
    copy = Marshal.load(Marshal.dump(error))
    assert_equal [error.class, error.message, error.deconstruct_keys(nil)], [copy.class, copy.message, copy.deconstruct_keys(nil)]
  end

  def test_an_error_raised_again_in_another_thread_keeps_its_attributes
    error = timed_out
    raised = assert_raises(Penstock::MessageTimedOutError) { raise error.exception("again") }
    assert_equal ["again", :msg_timed_out, "nowhere"], [raised.message, raised.code, raised.topic]
  end
end
