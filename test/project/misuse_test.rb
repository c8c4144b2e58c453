# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/valid_arguments"

# Every public method of objects that are closed, were never initialized, or belong to the parent process. A call does no harm, or
# raises an error that says what is wrong.
class MisuseTest < PenstockTest
  slow(/_continuation_/)

  begin
    require "connection_pool"
  rescue LoadError
    POOLS = false
  else
    POOLS = true
  end

  LIMIT = GCLevel.slow? ? 60 : 10 # seconds for one call
  NAMED = [Penstock::Error, ArgumentError, TypeError].freeze # the allowed classes of errors

  MESSAGE = ValidArguments::MESSAGE

  # Methods that may return normally, by class: those that return known or existing values, and those that close again.
  HARMLESS = {
    Penstock::Producer => %i[around close close! closed? config current_variant disconnect disconnectable? id idempotent? inspect
                             messages metrics middleware monitor poller queue_length queue_size status tags transaction?
                             transactional?],
    Penstock::Producer::Variant => %i[default? inspect max_wait_timeout producer topic_config],
    Penstock::Consumer => %i[client close closed? config each id inspect metrics monitor statistics status tags],
    Penstock::Admin => %i[close closed? config id inspect monitor state
                          alter_configs apply configs create_acls delete_acls delete_groups delete_topics describe_groups lag plan
                          alter_scram_users], # without names there is nothing to do
    Penstock::EmbeddedCluster => %i[brokers close closed? inspect],
    Penstock::ShareableProducer => %i[closed? id inspect max_wait_timeout],
    Penstock::ConnectionPool => %i[available close inspect shutdown size stats],
    Penstock::DeliveryHandle => %i[error inspect label pending? report status topic wait delivered?],
    Internal::ProducerClient => %i[begin_closing close counters failed_message fatal_error hurry idempotent? inspect latencies
                                   queue_size set_credentials state token_refresher= transactional?],
    Internal::AdminClient => [],
    Penstock::Poller => %i[alive? count id inspect name stats],
    Internal::ClientReference => %i[answer attend await barred= changing= client= close handle inherited? inspect serve]
  }.transform_values { |methods| methods + %i[as_json to_json] }.freeze

  # ---- closed ----

  # defect 12
  def test_methods_of_a_closed_producer_raise_named_errors
    one = producer
    one.produce_sync(topic:, payload: "x")
    one.close
    assert_named(one)
  end

  def test_methods_of_a_producer_closed_before_setup_raise_named_errors
    one = Penstock::Producer.new.tap(&:close)
    assert_named(one)
  end

  # It raises other errors than a closed producer, because the missing configuration comes first.
  def test_methods_of_an_unconfigured_producer_raise_named_errors
    assert_named(Penstock::Producer.new, also: %i[setup])
  end

  slow def test_methods_of_a_closed_producers_variant_handles_and_client_raise_named_errors
    one = producer
    variant = one.with(max_wait_timeout: 100)
    handle = one.produce_async(topic:, payload: "x")
    shareable = one.shareable
    client = one.client
    one.close
    [variant, handle, shareable, client].each { |object| assert_named(object) }
  end

  # defect 12
  def test_methods_of_a_closed_consumer_raise_named_errors
    used = consumer
    used.assign(topic(partitions: 1) => [0]).poll(timeout: 0.01)
    [used, consumer].each do |one|
      one.close
      assert_named(one)
    end
  end

  def test_methods_of_a_closed_admin_client_raise_named_errors
    used = admin.tap(&:topics)
    [used, admin].each do |one|
      one.close
      assert_named(one)
    end
  end

  def test_methods_of_a_closed_cluster_raise_named_errors
    assert_named(own_cluster.tap(&:close))
  end

  def test_methods_of_a_pool_that_was_shut_down_raise_named_errors
    skip "needs the connection_pool gem" unless POOLS
    one = pool
    one.with(&:id)
    one.shutdown
    assert_named(one)
  end

  # ---- never initialized ----

  WHOLE = [Penstock::Producer, Penstock::Consumer, Penstock::Admin, Penstock::EmbeddedCluster, Penstock::ConnectionPool,
           Penstock::Monitor, Penstock::Middleware, Internal::EventSource].freeze

  # defect 12
  def test_classes_that_need_initialize_cannot_be_allocated
    WHOLE.each do |type|
      assert_match(/#{type.name} must be made by new/, assert_raises(TypeError) { type.allocate }.message)
    end
  end

  # defect 12
  def test_a_subclass_that_does_not_call_super_raises_in_new
    WHOLE.each do |type|
      careless = Class.new(type) { def initialize(*, **); end } # rubocop:disable Lint/MissingSuper
      error = assert_raises(TypeError) { careless.new { nil } }
      assert_match(/initialize of #{type.name} was not called; .* must call super/, error.message)
      assert_raises(TypeError) { Class.new(careless).new }
    end
  end

  def test_a_subclass_may_call_super_late_with_its_arguments_and_block
    type = Class.new(Penstock::Producer) do
      def initialize(servers, name:, &block)
        super() { |config| config.kafka = { "bootstrap.servers": servers } and block.call(config, name) }
      end
    end
    one = type.new("127.0.0.1:1", name: "named") { |config, name| config.id = name }
    assert_equal "named", one.id
    one.close
  end

  # As far as Ruby allows their allocation.
  def test_methods_of_native_objects_that_were_only_allocated_raise_named_errors
    [Internal::ProducerClient, Internal::AdminClient, Penstock::Poller, Internal::ClientReference].each do |type|
      assert_empty wrong(type.allocate, anew: -> { type.allocate }), type.name
    end
    [Internal::Bearer, Penstock::Message, Penstock::DeliveryHandle, Penstock::ShareableProducer].each do |type|
      assert_raises(TypeError) { type.allocate }
      assert_raises(TypeError, NoMethodError) { type.new } unless type == Penstock::Message # tests may create messages
    end
  end

  WITHOUT_MESSAGE = <<~'RUBY'
    servers, topic = ARGV
    producer = Penstock::Producer.new { |config| config.kafka = { "bootstrap.servers": servers } }
    times = 0
    time = Object.new
    time.define_singleton_method(:is_a?) { |type| type == Time || super(type) }
    time.define_singleton_method(:to_time) { Time.now.tap { producer.disconnect if (times += 1) == 1 } }
    GC.disable
    producer.shareable.produce_sync(topic:, payload: "x", timestamp: time)
    shareable = producer.shareable
    handles = ObjectSpace.each_object(Penstock::DeliveryHandle).to_a
    calls = %i[inspect pending? topic label error report delivered? as_json wait].map { |name| name.to_proc }
    calls << ->(handle) { Penstock::DeliveryHandle.await_all([handle], timeout: 0) } << ->(handle) { shareable.send(:renew, handle) }
    raised = ->(handle, call) { (call.call(handle) and false) rescue $!.message == "uninitialized Penstock::DeliveryHandle" }
    p handles.map { |handle| calls.count { |call| raised.(handle, call) } }.sort, calls.size
  RUBY

  CALLED_AGAIN = <<~'RUBY'
    require "continuation"
    coming_back = nil
    time = Object.new
    time.define_singleton_method(:is_a?) { |_| true }
    time.define_singleton_method(:to_time) do
      callcc { |here| coming_back ||= here }
      Time.now
    end
    producer = Penstock::Producer.new { |config| config.kafka = { "bootstrap.servers": ARGV[0] } }
    batch = Array.new(Integer(ARGV[2])) { { topic: ARGV[1], payload: "x" * 100 } }
    batch[1][:timestamp] = time
    times = 0
    begin
      producer.produce_many_async(batch)
    rescue RuntimeError => e
      puts e.message
    end
    times += 1
    GC.start
    replaced = Array.new(2_000) { |i| "x" * (i * 100) }
    coming_back.call if times < 4
    producer.close
    puts producer.metrics.fetch(:delivered), replaced.size
  RUBY

  [2, 1000].each do |size|
    define_method("test_a_continuation_cannot_reenter_a_batch_of_#{size}_after_its_handover") do
      expected = "a continuation came back into produce_many after its messages were handed over\n" * 3
      assert_equal "#{expected}#{size}\n2000\n", ruby!(CALLED_AGAIN, cluster.bootstrap_servers, topic, size.to_s)
    end
  end

  # The client is closed after the handle was made, and before the handle gets its message: the heap keeps such a handle. The heap
  # also keeps a handle of the batch that was abandoned when the next client's topic was made.
  # defect 12
  def test_a_delivery_handle_without_a_message_raises_a_type_error
    assert_equal "[0, 0, 11]\n11\n", ruby!(WITHOUT_MESSAGE, cluster.bootstrap_servers, topic)
  end

  # ---- objects of the parent process ----

  # A producer, its variant and a pool restart in a child. A poller has its own thread there.
  def test_a_child_may_use_the_parents_producer_variant_pool_and_admin_client
    one = producer
    one.produce_sync(topic:, payload: "x")
    objects = [one.with(max_wait_timeout: 5_000), one, Penstock::Poller.instance, used = admin.tap(&:topics)]
    objects << pool.tap { |made| made.with(&:id) } if POOLS
    assert_empty in_child(60) { objects.flat_map { |object| wrong(object, all: true) } }
    objects.last.shutdown if POOLS
    used.close
  end

  # defect 12
  slow def test_other_objects_of_the_parent_raise_named_errors_in_a_child
    one = producer
    consumer = self.consumer.assign(topic => [0])
    consumer.poll(timeout: 0.01)
    unreachable = unreachable_producer
    objects = [one.shareable, consumer, own_cluster, unreachable.produce_async(MESSAGE)]
    assert_empty in_child(60) { objects.flat_map { |object| wrong(object) } }
    unreachable.purge
    consumer.close
  end

  private

  def consumer
    Penstock::Consumer.new { |config| config.kafka = { "bootstrap.servers": cluster.bootstrap_servers, "group.id": "misuse" } }
  end

  # The embedded cluster answers no request of it that changes something.
  def admin = Penstock::Admin.new("bootstrap.servers": cluster.bootstrap_servers) { |config| config.timeout = 1_000 }

  def pool = Penstock::ConnectionPool.new(size: 1) { |config| config.kafka = { "bootstrap.servers": cluster.bootstrap_servers } }

  def assert_named(object, **options) = assert_empty(wrong(object, **options), object.class.name)

  # @param also [Array<Symbol>] methods that may return, in addition to those that always may
  # @param all [Boolean] whether all methods may return
  # @param anew [Proc, nil] makes a new object for each method
  # @return [Array<String>]
  def wrong(object, also: [], all: false, anew: nil)
    allowed = HARMLESS.fetch(object.class) + also
    public_methods_of(object).flat_map do |name|
      outcomes(anew ? anew.call : object, name).reject { |outcome| good?(outcome, all || allowed.include?(name)) }
                                               .map { |outcome| "#{object.class}##{name}: #{outcome.inspect}" }
    end
  end

  def good?(outcome, may_return)
    outcome.is_a?(Exception) ? NAMED.any? { |type| outcome.is_a?(type) } && !outcome.message.empty? : may_return
  end

  # The public methods of the class and of Penstock's modules, without internal ones. Methods that change the object come last.
  def public_methods_of(object)
    names = object.public_methods.select do |name|
      method = object.method(name)
      method.owner.name&.start_with?("Penstock") && !ours?(method)
    end
    names.partition { |name| !name.match?(/around|clos|shutdown|disconnect/) }.flatten
  end

  def ours?(method)
    file, line = method.source_location
    return false unless file

    comment = File.readlines(file).first(line - 1).reverse.take_while { |text| text.match?(/\A\s*#/) }
    comment.any? { |text| text.include?("@api private") }
  end

  # @return [Array] the results or errors, with valid arguments and with nil
  def outcomes(object, name)
    required = object.method(name).parameters.filter_map { |kind, _| kind == :req }.size
    [ValidArguments.of(object, name), [[nil] * required, {}]].uniq.map { |given| outcome(object, name, *given) }
  end

  SHORT = { poll: 0.01, poll_batch: 0.01, committed: 0.5, watermarks: 0.5, offsets_for_times: 0.5, lag: 0.5 }.freeze

  def outcome(object, name, arguments, keywords)
    keywords = { timeout: SHORT[name], **keywords } if SHORT.key?(name) && object.is_a?(Penstock::Consumer)
    without_words_about_blocks do
      Timeout.timeout(LIMIT, RuntimeError) { object.public_send(name, *arguments, **keywords) { :block } }
    end
  rescue StandardError, ScriptError, SystemStackError => e
    e
  end

  # All methods are called with a block. With -w, Ruby 3.4 warns about each method that does not use it.
  def without_words_about_blocks
    before = $VERBOSE
    $VERBOSE = false
    yield
  ensure
    $VERBOSE = before
  end
end
