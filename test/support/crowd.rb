# frozen_string_literal: true

# A program with many busy producers and consumers that use everything for which Penstock has threads, and what it counts.
module Crowd
  # Its own threads have names of their own. librdkafka's begin with "rdk:".
  PROGRAM = <<~'RUBY'
    require "json"
    require "logger"
    servers, settings, topic, producers, consumers = ARGV
    settings = JSON.parse(settings, symbolize_names: true)

    USER = settings.delete(:user)
    class Provider
      def encode(part) = [JSON.generate(part)].pack("m0").tr("+/", "-_").delete("=")

      def on_oauthbearer_token_refresh(event)
        now = Time.now.to_i
        token = [{ alg: "none" }, { sub: USER, iat: now, exp: now + 3600 }].map { |part| encode(part) }.join(".")
        event[:bearer].oauthbearer_set_token(token: "#{token}.", lifetime_ms: (now + 5) * 1000, principal_name: USER)
      end
    end

    configure = lambda do |config, **more|
      config.kafka = { "bootstrap.servers": servers, "statistics.interval.ms": 500, **settings, **more }
      config.logger = Logger.new(File::NULL)
      config.oauth.token_provider_listener = Provider.new if settings[:"sasl.mechanism"]
    end
    $stop = false
    $seen = Hash.new(0)
    watch = ->(client, *events) { events.each { |name| client.monitor.subscribe(name) { $seen[name] += 1 } } }

    producers = Array.new(Integer(producers)) { Penstock::Producer.new(&configure) }
    producers.each { |one| watch.(one, "message.acknowledged", "statistics.emitted") }
    consumers = Array.new(Integer(consumers)) do |i|
      periodic = i.even?
      Penstock::Consumer.new do |config|
        configure.(config, "group.id": "crowd-#{topic}-#{i}", "auto.offset.reset": "earliest", "enable.auto.commit": periodic,
                           "auto.commit.interval.ms": 100)
        config.stuck_after = 2_000
      end
    end
    consumers.each { |one| watch.(one, "statistics.emitted", "offsets.committed") && one.subscribe(topic) }

    def work(name, clients, &block)
      clients.each_slice((clients.size / 5.0).ceil).map do |some|
        Thread.new do
          Thread.current.name = name
          until $stop
            some.each(&block)
            sleep 0.01
          end
        end
      end
    end
    sent = got = 0
    started = consumers.to_h { |one| [one, false] }.compare_by_identity
    mine = work("producing", producers) do |one|
      one.produce_async(topic:, payload: "x")
      one.produce_sync(topic:, payload: "x")
      sent += 2
    end
    mine += work("consuming", consumers) do |one|
      batch = one.poll_batch(max: 100, timeout: 0)
      got += batch.size
      started[one] ||= batch.any?
      one.commit(async: true) if batch.any? && !one.config.kafka[:"enable.auto.commit"]
    end
    mine << Thread.main

    sleep 0.1 until started.values.all? # until then, a job of each consumer asks brokers where its partitions begin
    samples = Array.new(120) do
      sleep 0.05
      rubys = (Thread.list - mine).map { |thread| thread.name.to_s[0, 15] }
      natives = Dir["/proc/self/task/*/comm"].filter_map { |path| File.read(path).chomp rescue nil }.grep(/\Apenstock/)
      natives -= rubys + %w[consum tokens stuck dispat events statis idle].map { |name| "penstock.#{name}" }
      (rubys + natives).tally
    end
    samples.sort_by! { |sample| sample.values.sum }
    $stop = true
    mine[..-2].each(&:join)
    print JSON.generate(threads: samples[-12], most: samples.last, sent:, got:, seen: $seen)
    $stdout.flush
    exit!(true)
  RUBY

  # @return [Hash] `threads` by name, Penstock's, Ruby's and native ones: no fewer than at nine of ten moments; and the `most`. A
  #   thread that makes one call in librdkafka, for as long as its caller waits, does not count.
  def crowd(producers, consumers, servers:, topic:, **settings)
    JSON.parse(ruby!(PROGRAM, servers, JSON.generate(settings), topic, producers.to_s, consumers.to_s, seconds: 120),
               symbolize_names: true)
  end

  MOST = 14 # the shared ones, and checks of stuck_after on as many threads as they may have
  BRIEF = 4 # others take over from threads that are slow

  def assert_few_threads(few, many)
    puts few.inspect, many.inspect if ENV["CROWD_PRINT"]
    [few, many].each do |counted|
      assert_operator counted[:threads].values.sum, :<=, MOST, counted.inspect
      assert_operator counted[:most].values.sum, :<=, MOST + BRIEF, counted.inspect
    end
    assert_empty %i[offsets.committed message.acknowledged statistics.emitted] - many[:seen].keys
  end
end
