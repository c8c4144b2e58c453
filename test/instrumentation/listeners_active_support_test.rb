# frozen_string_literal: true

require_relative "../test_helper"

# Loads the gem if it is installed, else the stand-in, which behaves like a newer version.
def load_active_support
  raise LoadError if ENV["PENSTOCK_ACTIVE_SUPPORT"] == "stand-in"

  verbose = $VERBOSE
  $VERBOSE = nil # the gem's warnings are not ours to fix
  require "active_support"
  require "active_support/notifications"
  true
rescue LoadError
  require_relative "../support/active_support_stand_in"
  false
ensure
  $VERBOSE = verbose if defined?(verbose)
end

class ListenersActiveSupportTest < PenstockTest
  REAL = load_active_support
  MESSAGE = { topic: "events", payload: "x" }.freeze
  Bridge = Penstock::Listeners::ActiveSupportNotifications

  def setup
    super
    @subscribers = []
    @seen = []
    @monitor = Penstock::Monitor.new
    @monitor.subscribe(Bridge.new)
  end

  def teardown
    @subscribers.each { |subscriber| ActiveSupport::Notifications.unsubscribe(subscriber) }
    super
  end

  def subscribe(pattern, &block)
    @subscribers << ActiveSupport::Notifications.subscribe(pattern, &block)
  end

  # Longer than any delay of the machine between two reads of the clock.
  LONG = 3_600_000.0

  # behaviour: ActiveSupport::Notifications
  def test_a_subscriber_with_one_parameter_gets_an_event_with_the_right_duration
    subscribe("message.produced_sync.penstock") { |event| @seen << event }
    @monitor.instrument("message.produced_sync", { producer_id: "p", message: MESSAGE, time: LONG })
    event, = @seen
    assert_kind_of ActiveSupport::Notifications::Event, event
    assert_equal "message.produced_sync.penstock", event.name
    assert_equal({ producer_id: "p", message: MESSAGE, time: LONG }, event.payload)
    assert_in_delta LONG, event.duration, 0.001
    assert_in_delta LONG / 1000, event.end - event.time, 0.000001
    assert_in_delta Time.now, event.end, 60
  end

  # behaviour: ActiveSupport::Notifications
  def test_a_subscriber_with_five_parameters_gets_times_and_the_payload
    subscribe("message.produced_sync.penstock") { |*all| @seen << all }
    subscribe(/sync\.penstock\z/) { |name, start, finish, id, payload| @seen << [name, start, finish, id, payload] }
    @monitor.instrument("message.produced_sync", { producer_id: "p", time: LONG })
    assert_equal 2, @seen.size
    @seen.each do |name, start, finish, id, payload|
      assert_equal ["message.produced_sync.penstock", { producer_id: "p", time: LONG }], [name, payload]
      assert_equal [Time, Time], [start.class, finish.class]
      assert_in_delta LONG, (finish - start) * 1000, 0.001
      assert_match(/\A\h{20}\z/, id)
      assert_in_delta LONG, ActiveSupport::Notifications::Event.new(name, start, finish, id, payload).duration, 0.01
    end
  end

  def test_a_subscriber_to_everything_gets_the_events_and_payloads_that_a_listener_gets
    own = {}
    theirs = {}
    subscribe(nil) { |event| theirs[event.name.delete_suffix(".penstock")] = event }
    producer = self.producer { |config| config.monitor = @monitor }
    names = %w[message.produced_sync message.acknowledged producer.closed]
    names.each { |name| @monitor.subscribe(name) { |event| own[name] = event } }
    producer.produce_sync(MESSAGE.merge(topic: topic))
    producer.close
    assert_equal names.sort, own.keys.sort
    own.each do |name, event|
      assert_equal event.payload.keys, theirs.fetch(name).payload.keys
      assert_in_delta event.payload[:time] || 0.0, theirs[name].duration, 0.01
    end
    assert_operator theirs.size, :>, 4
  end

  def test_an_event_without_a_time_has_no_duration
    subscribe("producer.connected.penstock") { |event| @seen << event.duration }
    @monitor.instrument("producer.connected", { producer_id: "p" })
    assert_equal [0.0], @seen
  end

  def test_every_event_is_published_under_its_name
    subscribe(nil) { |event| @seen << event.name }
    Penstock::Monitor::EVENTS.each { |name| @monitor.instrument(name) }
    assert_equal Penstock::Monitor::EVENTS.map { |name| "#{name}.penstock" }, @seen
  end

  def test_only_the_requested_events_are_published
    monitor = Penstock::Monitor.new
    monitor.subscribe(Bridge.new(events: [:"producer.closed", "producer.connected"]))
    refute monitor.listening?("statistics.emitted")
    subscribe(nil) { |event| @seen << event.name }
    %w[producer.closed producer.closing producer.connected].each { |name| monitor.instrument(name) }
    assert_equal %w[producer.closed.penstock producer.connected.penstock], @seen
    error = assert_raises(Penstock::EventUnknownError) { Bridge.new(events: ["producer.close"]) }
    assert_match(/did you mean "producer.closed"/, error.message)
  end

  def test_without_a_subscriber_the_payload_is_not_built
    event = Object.new
    def event.id = "message.acknowledged"
    def event.payload = raise("asked")
    Bridge.new.on_message_acknowledged(event)
    subscribe("message.acknowledged.penstock") { nil }
    assert_raises(RuntimeError) { Bridge.new.on_message_acknowledged(event) }
  end

  def test_a_subscriber_may_change_its_payload
    own = []
    subscribe("producer.closed.penstock") { |*, payload| payload[:more] = 1 }
    @monitor.subscribe("producer.closed") { |event| own << event.payload }
    @monitor.instrument("producer.closed", { producer_id: "p" })
    assert_equal [{ producer_id: "p" }], own
  end

  # behaviour: ActiveSupport::Notifications
  def test_a_subscriber_that_raises_is_reported_as_the_listeners_error_and_disturbs_no_other_listener
    errors = []
    subscribe("message.produced_sync.penstock") { |_event| raise KeyError, "mine" }
    subscribe("error.occurred.penstock") { |event| @seen << event.payload[:type] }
    producer = self.producer { |config| config.deliver = false }
    producer.monitor.subscribe(Bridge.new)
    producer.monitor.subscribe("error.occurred") { |event| errors << event }
    assert_equal 0, producer.produce_sync(MESSAGE).offset
    assert_equal [["listener.error", "mine", "message.produced_sync"]],
                 (errors.map { |event| [event[:type], event[:error].message, event[:event]] })
    assert_equal ["listener.error"], @seen
  end

  def test_monotonic_subscribers_of_older_versions_are_notified_too
    skip "the stand-in has none" unless REAL
    @subscribers << ActiveSupport::Notifications.monotonic_subscribe("producer.closed.penstock") { |*all| @seen << all }
    @monitor.instrument("producer.closed", { producer_id: "p", time: LONG })
    assert_in_delta LONG, (@seen[0][2] - @seen[0][1]) * 1000, 0.001
  end

  def test_without_the_gem_the_error_says_what_is_missing
    output = ruby!(<<~RUBY)
      module Kernel
        alias_method :require_it, :require
        def require(name)
          raise LoadError.new("no").tap { |error| error.instance_variable_set(:@path, name) } if name.start_with?("active_support")
          require_it(name)
        end
      end
      class LoadError; def path = @path; end
      begin
        Penstock::Listeners::ActiveSupportNotifications.new
      rescue LoadError => e
        puts e.message
      end
    RUBY
    assert_equal "Penstock::Listeners::ActiveSupportNotifications requires the gem activesupport: " \
                 "add gem \"activesupport\" to the Gemfile\n", output
  end

  def test_all_these_tests_pass_with_the_stand_in_too
    skip "this is the stand-in" unless REAL
    command = [RbConfig.ruby, "-w", "-I", Subprocess::LIBRARY, "-I", __dir__, __FILE__]
    output, status = Limited.capture2e({ "PENSTOCK_ACTIVE_SUPPORT" => "stand-in" }, *command)
    assert_predicate status, :success?, output
    assert_match(/, 0 failures, 0 errors, 2 skips/, output)
  end
end
