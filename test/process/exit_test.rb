# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/each_once"
require "etc"

# Programs that end with open producers. They produce to the cluster of this process, which then checks the messages that
# arrived.
class ExitTest < PenstockTest
  include EachOnce

  slow(/at_exit_after_others|no_loss_is|are_logged_by|interrupts_are_deferred/)

  HEAD = <<~RUBY
    SERVERS, TOPIC = ARGV
    def producer(id = "leaving", **kafka)
      Penstock::Producer.new do |config|
        config.id = id
        config.kafka = { "bootstrap.servers": SERVERS, "linger.ms": 2_000, log_level: 0, **kafka }
        config.close_timeout = 400 if SERVERS == "127.0.0.1:1"
      end
    end
    def produce(producer, count = 10) = count.times { |i| producer.produce_async(topic: TOPIC, payload: i.to_s, partition: 0) }
  RUBY

  ENDINGS = {
    "ends" => "",
    "calls exit" => "exit",
    "calls exit in a method called by a thread" => "Thread.new { sleep 0.05; Thread.main.raise(SystemExit) }; sleep",
    "calls abort" => "abort",
    "raises" => "raise 'uncaught'",
    "gets TERM" => "Process.kill(:TERM, Process.pid); sleep",
    "gets INT" => "Process.kill(:INT, Process.pid); sleep",
    "throws" => "throw :uncaught"
  }.freeze

  ENDINGS.each do |name, ending|
    define_method("test_all_messages_arrive_when_the_program_#{name.tr(" ", "_")}_after_produce_async") do
      assert_arrive(10) { |topic| ruby("#{HEAD}produce(producer)\n#{ending}", cluster.bootstrap_servers, topic) }
    end
  end

  def test_the_exit_status_of_the_program_does_not_change
    { "exit 3" => 3, "abort" => 1, "raise 'uncaught'" => 1 }.each do |ending, code|
      _, _, status = ruby("#{HEAD}produce(producer)\n#{ending}", cluster.bootstrap_servers, topic)
      assert_equal code, status.exitstatus, ending
    end
    _, _, status = ruby("#{HEAD}produce(producer)\nProcess.kill(:TERM, Process.pid); sleep", cluster.bootstrap_servers, topic)
    assert_equal Signal.list["TERM"], status.termsig
  end

  # behaviour: A producer that is still open when the process ends is closed
  def test_messages_of_many_open_producers_arrive
    assert_arrive(50) do |topic|
      run_quietly("#{HEAD}$all = Array.new(10) { producer.tap { |made| produce(made, 5) } }", topic)
    end
  end

  def test_an_at_exit_block_can_produce
    assert_arrive(20) do |topic|
      run_quietly("#{HEAD}$producer = producer\nat_exit { produce($producer) }\nproduce($producer)", topic)
    end
  end

  def test_a_producer_created_inside_at_exit_delivers
    assert_arrive(10) { |topic| run_quietly("#{HEAD}at_exit { produce(producer) }", topic) }
  end

  def test_a_producer_created_inside_at_exit_after_others_were_closed_delivers
    program = "at_exit { produce(producer) }\nrequire 'penstock'\n#{HEAD}produce(producer)"
    assert_arrive(20) { |topic| run_quietly_without_penstock(program, topic) }
  end

  def test_a_producer_first_used_inside_at_exit_after_others_were_closed_delivers
    program = "at_exit { produce($late) }\nrequire 'penstock'\n#{HEAD}$late = producer\nproduce(producer)"
    assert_arrive(20) { |topic| run_quietly_without_penstock(program, topic) }
  end

  slow def test_a_program_that_ends_while_threads_produce_delivers_all_accepted_messages
    name = topic(partitions: 1)
    output, _, status = ruby(<<~RUBY, cluster.bootstrap_servers, name)
      #{HEAD}
      one = producer("busy", "linger.ms": 1)
      accepted = Array.new(4) { 0 }
      4.times do |i|
        Thread.new do
          Thread.current.report_on_exception = false
          loop { one.produce_async(topic: TOPIC, payload: "x", partition: 0); accepted[i] += 1 }
        end
      end
      sleep 0.001 until accepted.all? { |count| count > 100 }
      at_exit do # runs before producers are closed
        Thread.list.each { |thread| thread.kill.join unless thread == Thread.current }
        puts accepted.sum
      end
    RUBY
    assert_predicate status, :success?
    assert_in_delta output.to_i, arrived(name), 4 # a thread may be killed between produce and counting
  end

  slow def test_threads_that_produce_while_the_process_ends_cause_no_crash
    10.times do
      _, errors, status = ruby(<<~RUBY, cluster.bootstrap_servers, topic)
        #{HEAD}
        Thread.report_on_exception = false
        one = producer("busy", "linger.ms": 0)
        4.times { Thread.new { loop { one.produce_async(topic: TOPIC, payload: "x") } } }
        2.times { Thread.new { loop { producer.then { |short| short.produce_sync(topic: TOPIC, payload: "x"); short.close } } } }
        sleep 0.05
      RUBY
      assert_equal [true, ""], [status.success?, errors]
    end
  end

  # ---- without a reachable broker ----

  def test_without_a_reachable_broker_the_process_ends_within_close_timeout_and_reports_lost_messages
    program = "#{HEAD}$one = producer('first'); $two = producer('second')
      produce($one, 3); produce($two, 4)"
    output = nil
    assert_took(10, seconds_of { output = ruby(program, "127.0.0.1:1", "test") }) # by default it would be 30
    _, errors, status = output
    assert_predicate status, :success?
    assert_match(/\[first\].*\b3 \D*messages were not delivered/, errors)
    assert_match(/\[second\].*\b4 \D*messages were not delivered/, errors)
    assert_equal 2, errors.lines.size, errors
  end

  # A close that continues in the background may have a longer timeout than the exit allows, and no code reads its report.
  {
    "that_was_interrupted" => "Timeout.timeout(0.2) { $one.close(timeout: 100) } rescue nil",
    "without_limit_that_was_interrupted" => "Timeout.timeout(0.2) { $one.close(timeout: nil) } rescue nil",
    "of_a_thread" => "Thread.new { $one.close(timeout: 100) }; sleep 0.01 until $one.closed?; sleep 0.1",
    "that_ctrl_c_interrupted" => "Thread.new { sleep 0.2; Process.kill(:INT, Process.pid) }; $one.close(timeout: 100)"
  }.each do |name, ending|
    define_method("test_a_close_#{name}_delays_the_exit_only_by_close_timeout_and_logs_lost_messages") do
      program = "require 'timeout'\n#{HEAD}$one = producer('one', 'message.timeout.ms': 25_000); produce($one, 3)\n#{ending}"
      errors = nil
      assert_took(GCLevel.slow? ? 15 : 8, seconds_of { _, errors, = ruby(program, "127.0.0.1:1", "test") })
      assert_match(/\[one\].*\b3 \D*messages were not delivered/, errors)
    end
  end

  # defect 27
  thorough slow def test_an_interrupted_unlimited_close_of_a_consumer_delays_the_exit_only_by_close_timeout
    name = topic(partitions: 1)
    program = <<~RUBY
      require "timeout"
      consumer = Penstock::Consumer.new do |config|
        config.kafka = { "bootstrap.servers": ARGV[0], "group.id": "group-\#{ARGV[1]}" }
        config.close_timeout = 400
      end
      consumer.subscribe(ARGV[1])
      sleep 0.01 until (consumer.poll(timeout: 0.1); consumer.assignment.any?)
      puts "assigned"
      $stdout.flush
      $stdin.gets # the brokers are slow now
      begin
        Timeout.timeout(0.1) { consumer.close(timeout: nil) }
      rescue Timeout::Error
        nil
      end
    RUBY
    slow = own_cluster
    slow.create_topic(name)
    assert_took(GCLevel.slow? ? 12 : 5, seconds_of_the_end(program, slow, name))
  end

  # The exit handler must close it, as at the end of any program, not Ruby when it frees the object.
  def test_a_producer_first_used_inside_at_exit_after_others_were_closed_is_closed_before_the_process_ends
    program = "at_exit { produce($late, 3) }\nrequire 'penstock'\n#{HEAD}$late = producer('late'); produce(producer)"
    command = [RbConfig.ruby, "-w", "-I", Subprocess::LIBRARY, "-e", program, "127.0.0.1:1", "test"]
    output, status = Limited.capture2e(*command)
    assert_predicate status, :success?
    assert_match(/\[late\].*\b3 \D*messages were not delivered.*still open when the process ended/, output)
  end

  def test_lost_messages_are_logged_by_the_producers_logger
    _, errors, status = ruby(<<~RUBY, "127.0.0.1:1", "test")
      #{HEAD}
      require "logger"
      $one = Penstock::Producer.new do |config|
        config.id = "logged"
        config.kafka = { "bootstrap.servers": SERVERS }
        config.close_timeout = 300
        config.logger = Logger.new($stderr)
      end
      produce($one, 3)
    RUBY
    assert_predicate status, :success?
    assert_match(/ERROR.*\[logged\].*\b3 \D*messages were not delivered/, errors)
  end

  def test_no_loss_is_reported_if_the_program_closed_the_producer
    _, errors, status = ruby("#{HEAD}one = producer; produce(one); one.close(timeout: 0.1)", "127.0.0.1:1", "test")
    assert_equal [true, ""], [status.success?, errors]
  end

  # Its error: the exit closes the consumer that the thread polls.
  slow def test_an_error_of_another_thread_does_not_abort_closing_at_exit
    slow = own_cluster
    name = topic(partitions: 1, on: slow)
    slow.set_round_trip_time(seconds: 0.5)
    read = topic(partitions: 1)
    _, errors, status = ruby(<<~RUBY, slow.bootstrap_servers, name, cluster.bootstrap_servers, read)
      servers, read = ARGV.pop(2)
      #{HEAD}
      Thread.abort_on_exception = true
      consumer = Penstock::Consumer.new { |config| config.kafka = { "bootstrap.servers": servers } }
      consumer.assign(read => { 0 => :beginning })
      polling = Thread.new { loop { consumer.poll(timeout: 60) } }
      Thread.pass until polling.stop?
      $one = producer
      produce($one)
    RUBY
    assert_equal [false, true], [status.success?, errors.include?("ConsumerClosedError")], errors
    slow.set_round_trip_time(seconds: 0)
    assert_equal 10, producer(servers: slow.bootstrap_servers).produce_sync(topic: name, payload: "probe", partition: 0).offset
  end

  # The listener's thread was created while the connecting thread deferred interrupts, and so it deferred them for ever.
  slow def test_a_listener_that_never_returns_does_not_prevent_the_exit
    { "exit 3" => [3, nil], "Process.kill(:TERM, Process.pid); sleep" => [nil, Signal.list["TERM"]] }.each do |ending, expected|
      _, errors, status = ruby(<<~RUBY, cluster.bootstrap_servers, topic)
        #{HEAD}
        one = producer
        entered = Queue.new
        one.monitor.subscribe("message.acknowledged") { (entered << true) && Queue.new.pop }
        produce(one)
        one.flush
        entered.pop
        #{ending}
      RUBY
      assert_equal [*expected, ""], [status.exitstatus, status.termsig, errors]
    end
  end

  # A new thread inherits deferred interrupts from the thread that creates it.
  def test_threads_created_while_interrupts_are_deferred_do_not_prevent_the_exit
    output, errors, status = ruby(<<~RUBY, cluster.bootstrap_servers, topic)
      require "logger"
      Thread.handle_interrupt(Object => :never) do
        $one = Penstock::Producer.new do |config|
          config.kafka = { "bootstrap.servers": ARGV[0] }
          config.idle_disconnect_timeout = 60_000
          config.logger = Logger.new(nil)
        end
        $one.monitor.subscribe(Penstock::Listeners::Statsd.new(interval: 60, port: 9))
        $one.produce_sync(topic: ARGV[1], payload: "x")
        $handle = Penstock::Producer.new { |config| config.kafka = { "bootstrap.servers": ARGV[0] } }.shareable
      end
      puts Thread.list.filter_map { |thread| thread.name[/penstock.(.*)/, 1] if thread.name }.sort.join(" ")
    RUBY
    assert_equal [0, nil, ""], [status.exitstatus, status.termsig, errors]
    assert_equal "dispatcher events idle ractors statsd", output.chomp
  end

  def test_control_c_aborts_closing_at_exit
    program = "#{HEAD}$one = producer('one')
      produce($one)
      Thread.new { sleep 0.3; Process.kill(:INT, Process.pid) }"
    program.sub!("config.close_timeout = 400", "config.close_timeout = 20_000")
    assert_took(15, seconds_of { ruby(program, "127.0.0.1:1", "test") })
  end

  # The exit waits for the first client while the closing threads of the others free them.
  def test_producers_without_references_close_before_the_process_ends
    program = <<~RUBY
      def drop(timeout)
        producer = Penstock::Producer.new do |config|
          config.kafka = { "bootstrap.servers": "127.0.0.1:1", log_level: 0 }
          config.close_timeout = timeout
        end
        producer.produce_many_async([{ topic: "t", payload: "x" }] * 3)
        nil
      end
      def deep(depth) = depth.zero? ? 0 : deep(depth - 1) + 1
      8.times { drop(100) }
      drop(600)
      deep(200) # leaves no producer on the stack
      GC.start
    RUBY
    _, errors, status = ruby(program)
    assert_predicate status, :success?, errors
    assert_equal 9, errors.scan("3 messages were not delivered in time").size
  end

  # ---- dropped without close ----

  # behaviour: A producer that is still open when the process ends is closed
  def test_a_producer_dropped_without_close_delivers_and_its_threads_end
    output = nil
    assert_arrive(10) do |topic|
      output = run_quietly(<<~RUBY, topic)
        #{HEAD}
        def drop = produce(producer)
        before = Dir.children("/proc/self/task").size
        1.times { drop }
        deadline = Time.now + 25
        until Internal::ProducerClient.open_count.zero? && Dir.children("/proc/self/task").size <= before
          1_000.times { Object.new }
          GC.start
          break if Time.now > deadline
          sleep 0.01
        end
        p Internal::ProducerClient.open_count, Dir.children("/proc/self/task").size - before
      RUBY
    end
    assert_equal "0\n0\n", output
  end

  def test_a_dropped_producer_reports_undelivered_messages
    _, errors, status = ruby(<<~RUBY, "127.0.0.1:1", "test")
      #{HEAD}
      def drop(depth = 10) = depth.zero? ? produce(producer("forgotten"), 3) : drop(depth - 1)
      drop
      deadline = Time.now + 25
      until Internal::ProducerClient.open_count.zero? || Time.now > deadline
        GC.start
        sleep 0.01
      end
    RUBY
    assert_predicate status, :success?
    assert_match(/\[forgotten\].*\b3 \D*messages were not delivered.*dropped without close/, errors)
  end

  # ---- signals ----

  # Ruby's signal handlers must run on Ruby's threads.
  def test_native_threads_block_every_signal
    one = producer
    one.produce_sync(topic:, payload: "x")
    blocked = Dir["/proc/self/task/*/status"].filter_map do |path|
      status = File.read(path)
      status[/^SigBlk:\s+(\h+)/, 1].to_i(16) if status.start_with?("Name:\tpenstock.poller")
    rescue Errno::ENOENT, Errno::ESRCH
      nil # the thread ended meanwhile
    end
    skip "no /proc here" if blocked.empty?
    signals = %w[INT TERM HUP USR1 CHLD ALRM].sum { |name| 1 << (Signal.list[name] - 1) }
    assert_equal [signals], blocked.map { |mask| mask & signals }.uniq
  end

  # ---- again and again ----

  # defect 11
  thorough slow def test_a_hundred_programs_with_open_producers_exit_cleanly
    programs = [true, false].cycle.first(100).map do |idempotent|
      "#{HEAD}$all = Array.new(3) { producer('x', 'linger.ms': 5, 'enable.idempotence': #{idempotent}) }
       $all.each { |made| produce(made, 2) }"
    end
    name = topic(partitions: 1)
    work = Queue.new.tap { |queue| programs.each { |program| queue << program } }.close
    running = Array.new(Etc.nprocessors) do
      Thread.new do
        while (program = work.pop)
          run_quietly(program, name)
        end
      end
    end
    running.each(&:join)
    assert_equal 600, arrived(name)
  end

  def test_exit_bang_in_a_fork_child_is_clean_and_does_not_affect_the_parent
    assert_arrive(20) do |topic|
      run_quietly(<<~RUBY, topic)
        #{HEAD}
        one = producer
        produce(one)
        4.times.map { fork { exit!(0) } }.each { |pid| Process.wait(pid); exit!(9) unless $?.success? }
        produce(one)
      RUBY
    end
  end

  # defect 11
  slow def test_exit_is_clean_with_ruby_free_at_exit
    with_environment("RUBY_FREE_AT_EXIT" => "1") do
      assert_arrive(10) do |topic|
        program = "#{HEAD}$one = producer; produce($one); $handle = $one.produce_many_async([]); Penstock::EmbeddedCluster.new"
        _, errors, status = ruby(program, cluster.bootstrap_servers, topic)
        errors = errors.lines.grep_v(/free at exit is experimental/i).join # a warning of Ruby
        assert_equal [true, ""], [status.success?, errors]
      end
    end
  end

  def test_exit_is_clean_with_an_open_embedded_cluster_and_producer
    _, errors, status = ruby(<<~RUBY)
      cluster = Penstock::EmbeddedCluster.new(brokers: 3)
      ARGV.replace([cluster.bootstrap_servers, "test"])
      #{HEAD}
      produce(producer)
    RUBY
    assert_equal [true, ""], [status.success?, errors]
  end

  private

  # The program writes a line when it is ready to end, then reads a line. In between this makes the cluster slow.
  def seconds_of_the_end(program, slow, name)
    command = [RbConfig.ruby, "-w", "-I", Subprocess::LIBRARY, "-r", "penstock", "-e", program, slow.bootstrap_servers, name]
    IO.popen(command, "r+") do |io|
      assert_equal "assigned\n", io.gets
      slow.set_round_trip_time(seconds: 20)
      seconds_of do
        io.puts
        io.read
      end
    end
  ensure
    slow.set_round_trip_time(seconds: 0)
  end

  # @return [Integer] the number of messages in partition 0 of a topic that only this test uses
  def arrived(topic) = producer.produce_sync(topic:, payload: "probe", partition: 0).offset

  def assert_arrive(count)
    name = topic(partitions: 1)
    yield name
    arrived = arrived(name)
    assert_nothing_lost_or_repeated(arrived == count ? [] : ["#{arrived} of #{count} arrived"])
  end

  # @return [String] its output
  def run_quietly(program, topic)
    output, errors, status = ruby(program, cluster.bootstrap_servers, topic)
    assert_equal [true, ""], [status.success?, errors]
    output
  end

  def run_quietly_without_penstock(program, topic)
    command = [RbConfig.ruby, "-w", "-I", Subprocess::LIBRARY, "-e", program, cluster.bootstrap_servers, topic]
    output, status = Limited.capture2e(*command)
    assert_equal [true, ""], [status.success?, output]
  end

  def with_environment(variables)
    before = ENV.to_h.slice(*variables.keys)
    ENV.update(variables)
    yield
  ensure
    variables.each_key { |name| ENV[name] = before[name] }
  end
end
