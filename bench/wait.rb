# frozen_string_literal: true

require "fiddle"
require "penstock"
require_relative "fibers"
require_relative "support"

# What waiting costs: from librdkafka's verdict on a message until its waiter runs again, and the whole way there and
# back, of a C program (wait.c), a Ruby thread and a fiber; and how many messages a second go through waits, in how many
# fibers.
#
# The verdict's moment is noted by a plugin inside librdkafka (acknowledged.c), the same in C and in Ruby, before the
# report is on its queue: the poller's wake-up counts. The waiter runs again when produce_sync has returned: its report
# counts as well.
module Wait
  # By so much at most, as a multiple of C's.
  BARS = { wake: { thread: 1.5, fiber: 2.0 }, trip: { thread: 1.05, fiber: 1.05 } }.freeze
  TIME_SLICE_MS = 100 # for which Ruby lets a thread compute while another wants to

  module_function

  def now_ns = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)

  def settings = { "linger.ms" => 0, **Bench::SETTINGS }

  def plugin = @plugin ||= Bench.program("acknowledged", "-shared", "-fPIC")

  def producer(servers, mode: :fd, **more)
    Penstock::Producer.new do |config|
      config.kafka = { "bootstrap.servers" => servers, **settings, **more }
      config.polling.mode = mode
    end
  end

  # ---- one message at a time ----

  # A row for each side: nanoseconds, and multiples of C's.
  def latency(servers, topic, rounds, trips: 500)
    with_sides(servers, topic, trips) do |sides|
      samples = sides.transform_values { { trips: [], wakes: [] } }
      (rounds + 1).times do |i|
        Bench.progress "wait: round #{i} of #{rounds}"
        sides.each do |name, side|
          GC.start
          round = side.call
          samples[name].each { |what, values| values.concat(round[what]) } if i.positive? # the first warms up
        end
      end
      Bench.progress ""
      latency_rows(samples)
    end
  end

  def with_sides(servers, topic, trips)
    arguments = settings.map { |pair| pair.join("=") }
    baseline = Open3.popen2(Bench.program("wait", "-ldl"), servers, topic, plugin, trips.to_s, *arguments)
    abort "bench/wait.c did not start" unless baseline[1].gets&.chomp == "ready"
    yield({ c: -> { c_round(*baseline) }, **ruby_sides(servers, topic, trips) })
  ensure
    baseline&.first&.close
    @producer&.close
  end

  def c_round(input, output, _process)
    input.puts
    input.flush
    JSON.parse(output.gets || abort("bench/wait.c ended"), symbolize_names: true)
  end

  def ruby_sides(servers, topic, trips)
    @producer = producer(servers, "plugin.library.paths": plugin)
    fibers = Fibers::SCHEDULERS.to_h do |scheduler|
      [:"fiber_#{scheduler}", lambda do
        round = nil
        Fibers.run(scheduler, 1) { round = round_trips(topic, trips) }
        round
      end]
    end
    { thread: -> { Thread.new { round_trips(topic, trips) }.value }, **fibers }
  end

  def round_trips(topic, count)
    acknowledged_ns = Fiddle::Pointer.new(Fiddle::Handle.new(plugin)["acknowledged_ns"])
    trips = []
    wakes = []
    count.times do
      started = now_ns
      @producer.produce_sync(topic:, payload: "x")
      ended = now_ns
      trips << (ended - started)
      wakes << (ended - acknowledged_ns[0, 8].unpack1("q"))
    end
    { trips:, wakes: }
  end

  def latency_rows(samples)
    c = samples[:c].transform_values { |values| Bench.median(values) }
    samples.map do |name, side|
      wake, trip = [side[:wakes], side[:trips]].map { |values| Bench.median(values) }
      { name:, wake:, wake_p99: Bench.percentile(side[:wakes], 99), wake_ratio: wake / c[:wakes],
        trip:, trip_p99: Bench.percentile(side[:trips], 99), trip_ratio: trip / c[:trips] }
    end
  end

  # The same beside a Ruby thread that computes: each wait ends with a wait for the GVL.
  def busy(servers, topic, trips: 50)
    stop = false
    sides = ruby_sides(servers, topic, trips)
    round_trips(topic, 10)
    computed = 0
    busy = Thread.new { computed += 1 until stop }
    sides.map do |name, side|
      Bench.progress "wait: #{name} beside a thread that computes"
      wakes = side.call[:wakes].map { |ns| ns / 1e6 }
      { name:, wake_ms: Bench.median(wakes), slowest_ms: wakes.max }
    end
  ensure
    stop = true
    busy&.join
    @producer&.close
    Bench.progress ""
  end

  # ---- many messages ----

  # Seconds of each way to send so many messages and have all their verdicts; the ways in turn, the medians of their rounds.
  def throughput(servers, topic, rounds, count: 10_000)
    producers = Array.new(10) { producer(servers) }
    modes = %i[thread reactor].to_h { |mode| [mode, producer(servers, mode:)] }
    producers.concat(modes.values).each { |one| one.produce_sync(topic:, payload: "x") }
    ways = ways(producers, topic, count).merge(ways_of_modes(modes, topic, count))
    seconds = ways.transform_values { [] }
    rounds.times do |i|
      ways.each do |name, way|
        Bench.progress "#{name}: round #{i + 1} of #{rounds}"
        GC.start
        start = Bench.now
        way.call
        seconds[name] << (Bench.now - start)
      end
    end
    Bench.progress ""
    throughput_rows(seconds.transform_values { |values| count / Bench.median(values) })
  ensure
    producers&.each(&:close)
  end

  def ways(producers, topic, count)
    message = { topic:, payload: "x" * 100 }
    one = producers.first
    ways = { "produce_many_sync" => -> { one.produce_many_sync(Array.new(count) { message }) },
             "produce_many_sync of 1,000 each" =>
               -> { (count / 1_000).times { one.produce_many_sync(Array.new(1_000) { message }) } },
             "one after the other" => -> { count.times { one.produce_sync(message) } } }
    Fibers::SCHEDULERS.each do |scheduler|
      { 1 => "one fiber", 3 => "3 fibers", 100 => "100 fibers", 1_000 => "1,000 fibers" }.each do |fibers, name|
        ways["#{name}, #{scheduler}"] = lambda do
          Fibers.run(scheduler, fibers) { |i| share(count, fibers, i).times { one.produce_sync(message) } }
        end
      end
      ways["10 producers, 100 fibers, #{scheduler}"] = lambda do
        Fibers.run(scheduler, 100) { |i| share(count, 100, i).times { producers[i % 10].produce_sync(message) } }
      end
    end
    ways
  end

  # The same as "one after the other", "one fiber" and "1,000 fibers" in another polling mode.
  def ways_of_modes(modes, topic, count)
    message = { topic:, payload: "x" * 100 }
    ways = { "one after the other, mode :thread" => -> { count.times { modes[:thread].produce_sync(message) } } }
    Fibers::SCHEDULERS.product([1, 1_000]).each do |scheduler, fibers|
      ways["#{fibers} fibers, #{scheduler}, mode :reactor"] = lambda do
        Fibers.run(scheduler, fibers) { |i| share(count, fibers, i).times { modes[:reactor].produce_sync(message) } }
      end
    end
    ways
  end

  def share(count, among, index) = (count / among) + (index < count % among ? 1 : 0)

  # Compared with 1,000 at a time, as 1,000 fibers have no more on their way either.
  def throughput_rows(rates)
    one, many = rates.values_at("one after the other", "produce_many_sync of 1,000 each")
    rates.map { |name, rate| { name:, rate: rate.round, to_one: rate / one, to_many: rate / many } }
  end

  # ---- what is shown ----

  def show(servers, topic, rounds)
    beside = busy(servers, topic)
    puts "wake-up beside a thread that computes, ms (bar: a time slice of #{TIME_SLICE_MS}):"
    beside.each { |row| puts format("%-14<name>s median %7.1<wake_ms>f  slowest %7.1<slowest_ms>f", row) }
    puts ""

    rows = latency(servers, topic, rounds)
    puts format("%-14s %10s %10s %8s   %10s %10s %8s", "us, medians", "wake-up", "p99", "to C", "round trip", "p99", "to C")
    rows.each { |row| puts latency_line(row) }
    puts "bars: wake-up of a thread #{BARS[:wake][:thread]}, of a fiber #{BARS[:wake][:fiber]}; " \
         "round trip #{BARS[:trip][:thread]}", ""

    ways = throughput(servers, topic, [rounds / 4, 1].max)
    puts format("%-36s %12s %18s %18s", "10,000 messages", "messages/s", "to one by one", "to 1,000 each")
    ways.each { |row| puts format("%-36<name>s %12<rate>d %18.2<to_one>f %18.2<to_many>f", row) }
    { latency: rows, beside:, throughput: ways }
  end

  def latency_line(row)
    micro = row.merge(%i[wake wake_p99 trip trip_p99].to_h { |name| [name, row[name] / 1e3] })
    format("%-14<name>s %10.1<wake>f %10.1<wake_p99>f %8.2<wake_ratio>f   " \
           "%10.1<trip>f %10.1<trip_p99>f %8.3<trip_ratio>f", micro)
  end
end
