# frozen_string_literal: true

require "json"
require "rbconfig"
require_relative "../support/limited"

# Runs programs that use every feature and then end in each possible way, many times. Some of them fork children that end in each
# way. They produce to the cluster of this process, which then checks the messages that arrived.
#
#   rake test:fork_and_exit [RUNS=500] [BESIDE=2] [ONLY=regular expression]
class ForkAndExit
  LIBRARY = File.expand_path("../../lib", __dir__)
  INTERNAL = File.expand_path("../support/internal.rb", __dir__)
  HEAD = <<~'RUBY'
    require "logger"
    SERVERS, TOPIC, RUN = ARGV
    $stdout.sync = true
    Thread.report_on_exception = false
    def producer
      Penstock::Producer.new do |config|
        config.kafka = { "bootstrap.servers": SERVERS, "linger.ms": 5 }
        config.logger = Logger.new(File::NULL)
        yield config if block_given?
      end.tap { |made| made.monitor.subscribe("message.acknowledged") { |event| event[:label] } }
    end
    def consumer(**kafka)
      Penstock::Consumer.new do |config|
        config.kafka = { "bootstrap.servers": SERVERS, "fetch.wait.max.ms": 20, **kafka }
        config.logger = Logger.new(File::NULL)
        config.close_timeout = 3_000
      end
    end
    def message(kind, number) = { topic: TOPIC, payload: "#{RUN} #{kind} #{number}", partition: 0, label: number }
  RUBY

  # Prints "confirmed" once five messages have been delivered. Ends with five more messages in flight, a thread that waits for
  # them, and a thread that polls.
  EVERYTHING = <<~'RUBY'
    $all = [one = producer, producer, reading = consumer, consumer]
    first = one.produce_sync(message("confirmed", 0))
    one.produce_many_sync(Array.new(2) { |i| message("confirmed", 1 + i) })
    Array.new(2) { |i| one.produce_async(message("confirmed", 3 + i)) }.each(&:wait)
    puts "confirmed"
    RUN.to_i % 10 == 5 ? (reading = consumer("group.id": "g#{RUN}")).subscribe(TOPIC) : reading.assign(TOPIC => { 0 => first.offset })
    Thread.new { loop { reading.poll(timeout: 1) } }
    $handles = Array.new(5) { |i| one.produce_async(message("flight", i)) }
    Thread.new { $handles.last.wait }
  RUBY

  CHILDREN = <<~'RUBY'
    one = producer
    reading = consumer.assign(TOPIC => { 0 => one.produce_sync(message("confirmed", 0)).offset })
    reading.poll(timeout: 1)
    count = 1
    done = false
    busy = Thread.new { until done do one.produce_sync(message("confirmed", count)); count += 1; sleep 0.005 end }
    use = lambda do |name|
      other = producer
      [one, other].each_with_index { |made, i| made.produce_sync(message("confirmed", "#{name}#{i}")) }
      own = consumer.assign(TOPIC => { 0 => :beginning })
      own.poll(timeout: 5) or exit!(8)
      own.close
    end
    endings = {
      "does nothing" => [0, -> {}], "exits" => [3, -> { exit 3 }], "exits at once" => [4, -> { exit!(4) }],
      "aborts" => [1, -> { $stderr.reopen(File::NULL); abort "x" }], "raises" => [1, -> { $stderr.reopen(File::NULL); raise "x" }],
      "gets TERM" => [nil, -> { Process.kill(:TERM, Process.pid); sleep }],
      "drops all" => [0, -> { one = reading = nil; GC.start; GC.compact if RUN.to_i.even? && GC.respond_to?(:compact) }],
      "uses all" => [0, -> { use.call("a"); exit }], "uses all and exits at once" => [5, -> { use.call("b"); exit!(5) }],
      "closes all" => [0, -> { one.close(timeout: 5); begin reading.close; rescue Penstock::ForkedError; nil end }],
      "forks again" => [6, -> { Process.wait(fork { use.call("c") }); exit($?.success? ? 6 : 9) }],
      "is a thread's" => [7, -> { Thread.new { fork { exit!(7) }.then { |pid| Process.wait(pid); exit!($?.exitstatus) } }.join }]
    }
    children = endings.map { |name, (status, ending)| [name, status, fork(&ending)] }
    children.each do |name, status, pid|
      Process.wait(pid)
      abort "a child that #{name} ended with #{$?}" unless $?.exitstatus == status && [nil, 15].include?($?.termsig)
    end
    done = true
    busy.join
    puts "confirmed", count + 6
  RUBY

  # Drops producers and consumers without closing them. Their threads and descriptors must be released.
  DROPPED = <<~'RUBY'
    def drop(round)
      one = producer
      one.produce_sync(message("confirmed", round))
      one.produce_async(message("flight", round))
      consumer.assign(TOPIC => { 0 => :beginning }).poll(timeout: 5)
      nil
    end
    def held = [Internal::ProducerClient.open_count, Dir.children("/proc/self/task").size, Dir.children("/proc/self/fd").size]
    def deep(depth) = depth.zero? ? 0 : deep(depth - 1) + 1
    Penstock::Poller.instance.stats # opens a descriptor that stays open
    before = held
    5.times { |round| Thread.new { drop(round) }.join }
    puts "confirmed"
    deadline = Time.now + 30
    until held.zip(before).all? { |now, then_| now <= then_ } || Time.now > deadline
      deep(100) # overwrites references to producers on the stack
      GC.start
      sleep 0.02
    end
    left = held.zip(before).map { |now, then_| now - then_ }
    abort "left: clients, threads, descriptors #{left}; #{Thread.list.map(&:name)}" unless left.all? { |count| count <= 0 }
  RUBY

  # Has an object of each kind in use. RUBY_FREE_AT_EXIT makes Ruby (not 3.1) free all objects at exit, in any order.
  FREED = <<~'RUBY'
    require ENV.fetch("SCHEDULER")
    lonely = Penstock::Producer.new do |config|
      config.kafka = { "bootstrap.servers": "127.0.0.1:1", log_level: 0, "queue.buffering.max.messages": 1 }
      config.on_queue_full = :drop
      config.logger = Logger.new(File::NULL)
      config.close_timeout = 500
    end
    $pending = lonely.produce_async(message("lost", 0))
    $failed = lonely.produce_async(message("lost", 1))
    $failed.error or abort "no message failed"
    $poller = Penstock::Poller.new
    $own = producer { |config| config.polling.poller = $poller }
    $cluster = Penstock::EmbeddedCluster.new
    $tokens = Penstock::Producer.new do |config|
      config.kafka = { "bootstrap.servers": $cluster.bootstrap_servers, "security.protocol": "sasl_plaintext", log_level: 0,
                       "sasl.mechanism": "OAUTHBEARER" }
      config.oauth.token_provider_listener = Class.new { def on_oauthbearer_token_refresh(event) = $bearer = event[:bearer] }.new
      config.logger = Logger.new(File::NULL)
      config.close_timeout = 500
    end
    $tokens.produce_async(message("lost", 2))
    $shareable = $own.shareable
    $sent = $shareable.produce_async(message("confirmed", 0))
    offset = $sent.wait.offset
    $many = $own.produce_many_sync(Array.new(3) { |i| message("confirmed", 1 + i) })
    $reader = consumer.assign(TOPIC => { 0 => offset })
    $message = $reader.poll(timeout: 10) or abort "no message was read"
    done = Queue.new
    $fibers = Thread.new do
      Fiber.set_scheduler($scheduler = PlainScheduler.new)
      Fiber.schedule { $own.produce_sync(message("confirmed", 4)).then { done << true } }
      Fiber.schedule { $pending.wait rescue $lost = $! }
    end
    done.pop
    ($fiber = Fiber.new { $own.produce_sync(message("other", 1)).then { Fiber.yield } }).resume
    puts "confirmed"
    $handles = Array.new(5) { |i| $own.produce_async(message("flight", i)) }
  RUBY

  # name => [exit status, signal, whether messages in flight must arrive, program]
  WAYS = {
    "ends" => [0, nil, true, EVERYTHING],
    "exits" => [3, nil, true, "#{EVERYTHING}exit 3"],
    "exits at once" => [4, nil, false, "#{EVERYTHING}exit!(4)"],
    "aborts" => [1, nil, true, "#{EVERYTHING}abort 'expected'"],
    "gets TERM" => [nil, "TERM", true, "#{EVERYTHING}Process.kill(:TERM, Process.pid); sleep"],
    "gets INT" => [nil, "INT", true, "trap('INT', 'DEFAULT'); #{EVERYTHING}Process.kill(:INT, Process.pid); sleep"],
    "raises" => [1, nil, true, "#{EVERYTHING}raise 'expected'"],
    "throws in a thread" => [1, nil, true, "#{EVERYTHING}Thread.abort_on_exception = true\n" \
                                           "Thread.new { throw :expected }; sleep"],
    "closes in a trap" => [0, nil, true, "#{EVERYTHING}trap('TERM') { $all.each(&:close); exit }\n" \
                                         "Process.kill(:TERM, Process.pid); sleep"],
    "drops without close" => [0, nil, true, DROPPED],
    "ends and frees everything" => [0, nil, true, FREED],
    "forks" => [0, nil, true, CHILDREN]
  }.freeze
  FREEING = {
    "ends and frees everything" => { "RUBY_FREE_AT_EXIT" => "1",
                                     "SCHEDULER" => File.expand_path("../support/plain_scheduler", __dir__) }
  }.freeze
  FREEING_WARNING = /^.*Free at exit is experimental.*$/ # printed by Ruby
  CONFIRMED = 5
  BATCH = 10    # number of runs that share a topic, which is read after them
  LONGEST = 120 # seconds for one run

  # @return [Array<Array(String, Integer, String)>] name of the way, number of the run, and the problem
  attr_reader :wronged

  # @param servers [String] the addresses of a cluster of this process
  # @param runs [Integer] number of runs of each way
  # @param beside [Integer] number of concurrent programs
  def initialize(servers, runs:, beside: 2, only: nil, out: $stdout)
    @servers = servers
    @out = out
    @ways = WAYS.select { |name, _| only.nil? || name.match?(only) }
    @runs = runs
    @beside = beside
    @wronged = []
    @done = Hash.new(0)
    @confirmed = 0
    @lock = Mutex.new
  end

  # @return [Boolean] whether all programs ended as expected
  def call
    jobs = Thread::Queue.new
    (0...@runs).each_slice(BATCH) { |runs| @ways.each_key { |name| jobs << [name, runs] } }
    jobs.close
    Array.new(@beside) { Thread.new { batch(*jobs.pop) until jobs.empty? } }.each(&:join)
    @out.puts "fork_and_exit: #{@done.values.sum} runs, #{@ways.size} ways to end; #{@wronged.size} ended wrongly; " \
              "#{@confirmed} confirmed messages are in their topic once"
    @wronged.empty?
  end

  private

  def batch(name = nil, runs = [])
    return unless name

    topic = "#{name.tr(" ", "-").delete("!")}-#{runs.first}-#{rand(2**32)}"
    expected = runs.to_h { |run| [run, program(name, topic, run)] }
    count(name, runs.size, expected.values.compact.sum) { arrived(name, topic, expected) }
  end

  # @return [Integer, nil] the number of confirmed messages; nil if the run failed
  def program(name, topic, run)
    status, signal, _, text = WAYS.fetch(name)
    output, errors, ended = capture("#{HEAD}#{text}", topic, run.to_s, FREEING.fetch(name, {}))
    expected = [status, signal && Signal.list[signal]]
    return wrong(name, run, "#{ended}: #{output} #{errors}") unless [ended.exitstatus, ended.termsig] == expected
    return wrong(name, run, errors) if errors.gsub(FREEING_WARNING, "").match?(/penstock:|warning|\[BUG\]/)
    return wrong(name, run, "confirmed nothing") unless output.start_with?("confirmed")

    output.lines[1]&.to_i || CONFIRMED
  end

  def capture(program, topic, run, environment)
    command = [RbConfig.ruby, "-w", "-I", LIBRARY, "-r", "penstock", "-r", INTERNAL, "-e", program, @servers, topic, run]
    Limited.capture3(environment, *command, seconds: LONGEST)
  end

  # Every confirmed message must be in the topic once. So must messages in flight, if the end of the program waits for them.
  def arrived(name, topic, expected)
    found = Reader.new(@servers).read(topic).map { |record| record.payload.split(" ", 2) }.group_by(&:first)
    expected.compact.each do |run, confirmed|
      mine = found.fetch(run.to_s, []).map(&:last)
      twice = mine.tally.select { |_, times| times > 1 }
      wrong(name, run, "stored more than once: #{twice}") if twice.any?
      about = { "confirmed" => confirmed, "flight" => in_flight(name) }.compact
      about.each { |kind, count| complete(name, run, mine.grep(/\A#{kind} /), count) }
    end
  end

  # @return [Integer, nil] the number of messages in flight that must arrive; nil: any number
  def in_flight(name)
    return if name == "forks"

    CONFIRMED if WAYS.fetch(name)[2]
  end

  def complete(name, run, stored, count)
    wrong(name, run, "stored: #{stored}, of #{count}") unless stored.size == count
  end

  def wrong(name, run, why)
    @lock.synchronize { @wronged << [name, run, why] }
    @out.puts "WRONG: run #{run} that #{name}: #{why}"
    nil
  end

  def count(name, runs, confirmed)
    yield
    @lock.synchronize do
      @done[name] += runs
      @confirmed += confirmed
      @out.puts "#{Time.now.strftime("%T")} #{name}: #{@done[name]} of #{@runs}" if @runs >= BATCH
    end
  end
end

if $PROGRAM_NAME == __FILE__
  require "penstock"
  require_relative "../support/reader"
  $stdout.sync = true
  cluster = Penstock::EmbeddedCluster.new(brokers: 1)
  runs, beside = ENV.values_at("RUNS", "BESIDE").zip([500, 2]).map { |given, default| Integer(given || default) }
  only = ENV["ONLY"] && Regexp.new(ENV["ONLY"])
  passed = ForkAndExit.new(cluster.bootstrap_servers, runs:, beside:, only:).call
  cluster.close
  puts "Ruby #{RUBY_VERSION}, librdkafka #{Penstock.librdkafka_version}"
  exit passed
end
