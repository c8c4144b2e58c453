# frozen_string_literal: true

require "logger"
require_relative "../test_helper"
require_relative "../support/app_test_case"

# Applications: rebalances, the end, settings, and programs.
class AppLifeTest < AppTestCase
  slow(/partitions_move|max_poll|second_signal|hung|hangs/)

  # ---- rebalances ----

  def test_partitions_move_without_loss_and_without_overlap
    name = topic(partitions: 4)
    4.times { |partition| produce(name, 0...200, partition:) }
    running = Hash.new(0)
    lock = Mutex.new
    overlaps = 0
    handle = lambda do |record|
      lock.synchronize { overlaps += 1 if (running[record.partition] += 1) > 1 }
      sleep 0.005
      lock.synchronize { running[record.partition] -= 1 }
      @seen << [record.partition, record.offset]
    end
    one = start(name, handle)
    eventually { @seen.size > 50 }
    two = start(name, handle)
    found = []
    eventually(60) { found.concat(Array.new(@seen.size) { @seen.pop }).uniq.size == 800 }
    [one, two].each { |server| assert_predicate server.stop, :complete? }
    assert_equal 0, overlaps
    assert_equal [0, 1, 2, 3].product([*0...200]), found.uniq.sort
    assert_equal 800, found.size unless cluster == embedded_cluster # the embedded cluster refuses commits in a rebalance
  end

  thorough def test_work_longer_than_max_poll_interval_keeps_its_partition
    name = topic(partitions: 1)
    produce(name, %w[a b])
    @server = Penstock.app do |app|
      app.kafka = { "bootstrap.servers": cluster.bootstrap_servers }
      app.drain_timeout = 2
      app.group(@group, kafka: { **KAFKA, "max.poll.interval.ms": 6_000 }) do |group|
        group.topic name, to: (lambda do |record|
          sleep 9 if record.payload == "a"
          @seen << record.payload
        end)
      end
    end.start
    @servers << @server
    assert_equal %w[a b], seen(2)
    eventually { committed_offset(name) == 2 }
  end

  thorough def test_a_second_stop_may_be_earlier
    name = topic(partitions: 1)
    produce(name, %w[a])
    started = Thread::Queue.new
    server = start(name) do
      started << true
      sleep 8
    end
    started.pop
    server.stop_later
    report = server.stop(timeout: 1)
    assert_equal [3, [name]], [report.status, report.blockers.map(&:topic)]
    assert_same report, server.wait
  end

  def test_a_start_that_fails_leaves_nothing_running
    before = Thread.list
    application = Penstock.app do |app|
      app.kafka = { "bootstrap.servers": cluster.bootstrap_servers }
      app.group("fine-#{rand(2**32)}") { |group| group.topic "t", to: -> { nil } }
      app.group("wrong", kafka: { "fetch.min.bytes": "abc" }) { |group| group.topic "t", to: -> { nil } }
    end
    assert_raises(Penstock::ConfigurationInvalidError) { application.start }
    eventually { (Thread.list - before).empty? }
  end

  def test_settings_that_only_one_type_of_client_has_apply_to_these
    log = StringIO.new
    name = topic(partitions: 1)
    server = start(name, configure: lambda { |app|
      app.logger = Logger.new(log)
      app.kafka = { **app.kafka, "session.timeout.ms": 6_000, "linger.ms": 5 }
    }) { |message| @seen << message.payload }
    produce(name, %w[a])
    seen(1)
    assert_empty log.string.lines.grep(/no effect/)
    server.stop
    start(name, configure: lambda { |app|
      app.logger = Logger.new(log)
      app.producer_kafka = { "session.timeout.ms": 6_000 }
    }) { nil }
    assert_match(/session\.timeout\.ms has no effect on a producer/, log.string)
  end

  # A message that is tried for ever would never come to what its route says.
  def test_how_often_a_message_is_tried_again_by_default
    dead = { dead_letter: "dead" }
    { {} => nil, dead => 5, { after_retries: :skip } => 5, { **dead, after_retries: :block } => nil,
      { **dead, retry: { times: nil } } => nil, { **dead, retry: { from: 2 } } => 5 }
      .each do |options, times|
        route = app("t", **options) { nil }.groups.first.routes.first
        assert_equal [times, 60], route.options[:retry].values_at(:times, :to), options.inspect
      end
  end

  # ---- the end ----

  # The first message is in work until the application stops, however long that takes.
  slow def test_an_error_of_work_is_published_while_it_stops
    name = topic(partitions: 1)
    produce(name, ["a"])
    started = Thread::Queue.new
    server = start(name, processor do
      define_method(:process) do |_record|
        started << true
        sleep 0.01 until cancelled?
        raise "late"
      end
    end)
    started.pop
    assert_predicate server.stop, :complete?
    assert_equal ["late"], Array.new(@errors.size) { @errors.pop[:error].message }
    assert_nil committed_offset(name)
  end

  slow def test_stopping_waits_for_work
    name = topic(partitions: 1)
    produce(name, 0...3)
    started = Thread::Queue.new
    seen = @seen
    server = start(name, processor do
      define_method(:process) do |record|
        started << true
        sleep 0.01 until cancelled?
        sleep 0.1 # stopping goes on meanwhile
        seen << record.offset
      end
    end)
    started.pop
    report = server.stop
    assert_equal [true, 0, "everything is finished"], [report.complete?, report.status, report.to_s]
    assert_equal [0], seen(1)
    assert_equal 1, committed_offset(name)
    assert_same report, server.stop
  end

  def test_a_hung_processor_is_named_when_the_time_is_up
    name = topic(partitions: 2)
    produce(name, 0...2, partition: 1)
    entered = Thread::Queue.new
    gate = Thread::Queue.new
    server = start(name) { entered << true && gate.pop }
    entered.pop
    report = nil
    assert_took(8, seconds_of { report = server.stop(timeout: 0.5) })
    assert_equal [3, [[@group, name, 1, 0]]], [report.status, report.blockers.map { |blocker| blocker.to_a.first(4) }]
    assert_includes report.to_s, File.basename(__FILE__)
    assert_nil committed_offset(name, 1)
    gate.close
  end

  # Nothing else waits for it: the group keeps its member, messages are processed, and offsets are committed.
  def test_a_hung_listener_holds_up_nothing_and_is_named_at_the_end
    name = topic(partitions: 1)
    gate = Thread::Queue.new
    tries = Thread::Queue.new
    server = start(name, configure: ->(app) { app.monitor.subscribe("consumer.consuming.retry") { gate.pop } },
                         retry: { from: 0, to: 0 }) do |record|
      tries << true
      raise "not yet" if tries.size == 1

      @seen << record.payload
    end
    produce(name, 0...3)
    assert_equal %w[0 1 2], seen(3)
    produce(name, 3...5)
    assert_equal %w[3 4], seen(2)
    eventually { committed_offset(name) == 5 }
    report = nil
    assert_took(8, seconds_of { report = server.stop(timeout: 0.5) })
    assert_equal [3, [], ["a listener of consumer.consuming.retry"]],
                 [report.status, report.groups, report.blockers.map(&:processor)]
    assert_match(/#{File.basename(__FILE__)}/, report.to_s)
    gate.close
    eventually { server.wait.complete? }
  end

  def test_a_logger_that_hangs_holds_up_nothing
    name = topic(partitions: 1)
    gate = Thread::Queue.new
    logger = Logger.new(File::NULL)
    logger.define_singleton_method(:error) { |*, &_| gate.pop }
    produce(name, 0...3)
    start(name, configure: ->(app) { app.logger = logger }, after_retries: :skip, retry: { times: 0 }) do |record|
      raise "odd" if record.payload == "0"

      @seen << record.payload
    end
    assert_equal %w[1 2], seen(2)
    eventually { committed_offset(name) == 3 }
    gate.close
  end

  # So it is for the line that says how many events were left out.
  def test_a_logger_that_fails_holds_up_no_event
    gate = Thread::Queue.new
    heard = Thread::Queue.new
    failing = Class.new(Logger) { def warn(*) = raise("disk full") }
    application = app("any", configure: ->(made) { made.logger = failing.new(nil) }) { nil }
    application.monitor.subscribe("app.quiet") { heard << true && gate.pop }
    publisher = Internal::Publisher.new(application.monitor, application.__send__(:all_settings))
    publisher.start
    publish = ->(count) { count.times { publisher.publish(Penstock::Event.new("app.quiet", {})) } }
    publish.call(1)
    heard.pop
    publish.call(10_001)
    _out, written = capture_subprocess_io { gate.close && eventually { heard.size == 10_000 } }
    publish.call(1)
    eventually { heard.size == 10_001 }
    assert_match(/disk full/, written)
  ensure
    gate&.close
    publisher&.close
  end

  # `exit` ends the threads of an application that was not stopped.
  def test_a_program_that_exits_amid_work_prints_nothing
    out, errors, status = ruby(<<~RUBY)
      require "penstock/testing"
      require "penstock/app"
      cluster = Penstock::EmbeddedCluster.new
      Penstock::Producer.new("bootstrap.servers": cluster.bootstrap_servers).produce_sync(topic: "t", payload: "a")
      busy = Thread::Queue.new
      Penstock.app do |app|
        app.kafka = { "bootstrap.servers": cluster.bootstrap_servers }
        app.group("g") { |group| group.topic "t", to: ->(_) { (busy << true) && sleep } }
      end.start
      busy.pop
      exit
    RUBY
    assert_equal ["", "", 0], [out, errors, status.exitstatus]
  end

  # A program that has called `start` waits for nothing, so only the event tells it. This listener is called by that thread.
  def test_an_error_of_the_applications_own_thread_is_published
    name = topic(partitions: 1)
    produce(name, ["a"])
    server = start(name, configure: lambda { |app|
      app.monitor.subscribe("messages.polled") { raise Exception, "odd" } # rubocop:disable Lint/RaiseException
    }) { nil }
    report = server.wait
    assert_equal [1, "odd"], [report.status, report.error.message]
    eventually { !@errors.empty? }
    assert_equal ["app.fatal_error", report.error], @errors.pop.payload.values_at(:type, :error)
  end

  def test_a_listener_may_stop_the_application
    name = topic(partitions: 1)
    produce(name, ["a"])
    server = nil
    stopped = Thread::Queue.new
    server = start(name, configure: ->(app) { app.monitor.subscribe("message.skipped") { stopped << server.stop } },
                         after_retries: :skip, retry: { times: 0 }) { raise "odd" }
    eventually { !stopped.empty? }
    assert_nil stopped.pop # it goes on, as the listener's thread is needed for it
    assert_predicate server.wait, :complete?
  end

  slow def test_a_processor_may_stop_the_application
    name = topic(partitions: 1)
    produce(name, 0...3)
    server = start(name) { @seen << server.stop }
    assert_predicate server.wait, :complete?
    assert_equal [nil], seen(1).uniq
  end

  def test_it_stops_before_it_has_joined
    assert_predicate start(topic) { nil }.stop, :complete?
  end

  slow def test_twenty_groups_need_no_more_threads_than_one
    name = topic(partitions: 1)
    produce(name, ["a"])
    before = Thread.list
    server = Penstock.app do |app|
      app.kafka = { "bootstrap.servers": cluster.bootstrap_servers }
      app.threads = 2
      20.times do |i|
        app.group("#{@group}-#{i}", kafka: KAFKA) { |group| group.topic(name, to: ->(_) { @seen << i }) }
      end
    end.start
    @servers << server
    assert_equal [*0...20], seen(20).sort
    # Two workers, the loop, its watchdog, one for listeners, one of config.stuck_after; and a moment ago those that read offsets.
    eventually { (Thread.list - before).size <= 6 }
  end

  # ---- settings ----

  def test_wrong_settings_are_named_at_once
    wrong = { "unknown option: :ordr (did you mean :order?)" => { ordr: :key }, "did you mean :times" => { retry: { time: 1 } },
              "must be one of :partition, :key, :unordered" => { order: :keys },
              "after_retries: :dead_letter requires" => { after_retries: :dead_letter },
              ":batch is possible with" => { order: :key, batch: {} }, "in_flight must be" => { in_flight: 0 },
              "needs from: (5) not above to: (1)" => { retry: { from: 5, to: 1 } }, "dead_letter must be" => { dead_letter: :x },
              "fatal must be an Array of exception classes" => { fatal: [String] } }
    wrong.each do |text, options|
      error = assert_raises(ArgumentError, Penstock::ConfigurationInvalidError) { app("orders", **options) { nil } }
      assert_includes error.message, text
    end
  end

  def test_wrong_processors_are_named_at_once
    both = processor { %i[process process_batch].each { |name| define_method(name) { |_| nil } } }
    wrong = { both => "both process and process_batch", processor { nil } => "needs a method process",
              Class.new => "subclass of Penstock::Processor", 5 => "must be a class of processors" }
    wrong.each do |to, text|
      assert_includes assert_raises(Penstock::ConfigurationInvalidError) { app("orders", to) }.message, text
    end
  end

  def test_wrong_applications_are_named_at_once
    own = { "enable.auto.commit" => true }
    misspelt = { "sesion.timeout.ms": 6_000 }
    wrong = { "has no group" => ->(_) {}, "threads must be" => ->(app) { app.threads = 0 },
              "has no topic" => ->(app) { app.group("g") { nil } },
              "enable.auto.commit is the application's own" => ->(app) { app.group("g", kafka: own) { nil } },
              "app.producer_kafka: librdkafka" => ->(app) { app.producer_kafka = misspelt },
              '"sesion.timeout.ms" (did you mean "session.timeout.ms"?)' => ->(app) { app.kafka = misspelt },
              "afka of the group g: librdkafka" => ->(app) { app.group("g", kafka: misspelt) { nil } } }
    wrong.each do |text, block|
      assert_includes assert_raises(Penstock::ConfigurationInvalidError) { Penstock.app(&block) }.message, text
    end
  end

  # ---- programs ----

  PROGRAM = <<~RUBY
    require "penstock/app"
    servers, topic = ARGV
    app = Penstock.app do |app|
      app.kafka = { "bootstrap.servers": servers }
      app.shutdown_timeout = 20
      app.group("program-\#{Process.pid}", kafka: { "session.timeout.ms": 6_000 }) do |group|
        group.topic(topic, to: lambda do |record|
          puts(record.payload) || $stdout.flush
          sleep if record.payload == "hang"
          exit(0) if record.payload == "exit"
        end)
      end
    end
    at_exit { puts "at exit" }
    app.monitor.subscribe("app.stopped") { |event| puts "status \#{event[:report].status}" }
    app.run
    puts "stopped"
  RUBY

  slow def test_a_program_ends_with_a_signal
    name = topic(partitions: 1)
    produce(name, ["hello"])
    output, status = program(name) { |io| io.gets && Process.kill(:TERM, io.pid) }
    assert_equal ["status 0\nstopped\nat exit\n", 0], [output, status.exitstatus]
  end

  slow def test_a_program_that_an_error_ends_runs_at_exit
    name = topic(partitions: 1)
    produce(name, ["exit"])
    output, status = program(name, &:gets)
    assert_equal 1, status.exitstatus
    assert_equal ["at exit", "penstock: app.fatal_error: SystemExit: exit", "penstock: stopped because of SystemExit: exit",
                  "status 1"], output.lines(chomp: true).last(4).sort
  end

  def test_a_second_signal_ends_a_program_that_hangs
    name = topic(partitions: 1)
    produce(name, ["hang"])
    output, status = program(name) { |io| io.gets && 2.times { Process.kill(:INT, io.pid) && sleep(0.3) } }
    assert_equal 3, status.exitstatus
    assert_includes output, "still in work"
    refute_includes output, "at exit"
    assert_includes output, "status 3\n" # what listeners have written is not lost in stdout's buffer
  end

  private

  def program(topic)
    io = IO.popen(
      [RbConfig.ruby, "-W0", "-I#{File.expand_path("../../lib", __dir__)}", "-e", PROGRAM, cluster.bootstrap_servers,
       topic], err: %i[child out]
    )
    yield io
    output = io.read
    io.close
    [output, $?]
  end
end
