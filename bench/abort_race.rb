# frozen_string_literal: true

# What an abort right after the first produce does to a transactional producer (librdkafka's issue 4849): with librdkafka alone,
# and with Penstock, which sends messages in flight before it aborts (core/produce/transaction.c). Each round begins, produces and
# aborts, at once or some ms later. Every tenth round commits instead. A producer with a fatal error is replaced. At the end,
# readers show which aborted messages are visible, and which committed ones are not.
#   PENSTOCK_KAFKA=host:9092 ruby -Ilib bench/abort_race.rb [ROUNDS]           # some minutes
# PENSTOCK_KAFKA=host:9092 ruby bench/abort_race.rb [ROUNDS] plain # without the gem, and without readers

require "fiddle"
require "logger"

SERVERS = ENV.fetch("PENSTOCK_KAFKA")
ROUNDS = Integer(ARGV.fetch(0, "300"))
PARTITIONS = 4 # of a topic that Kafka creates itself

unless ARGV[1] == "plain"
  require "penstock"
  require_relative "../test/support/reader"
end

# A producer with librdkafka alone.
class Plain
  # A transaction call failed.
  class Failed < StandardError
    attr_reader :code

    def initialize(code, fatal)
      super("#{code} #{fatal}")
      @code = code
      @fatal = fatal
    end

    def fatal? = @fatal
  end

  LIBRARY = Fiddle.dlopen("librdkafka.so.1")
  TYPES = { p: Fiddle::TYPE_VOIDP, i: Fiddle::TYPE_INT, z: Fiddle::TYPE_SIZE_T, v: Fiddle::TYPE_VOID }.freeze

  def self.native(name, signature)
    result, *arguments = signature.chars.map { |char| TYPES.fetch(char.to_sym) }
    function = Fiddle::Function.new(LIBRARY["rd_kafka_#{name}"], arguments, result)
    define_method(:"rd_#{name}") { |*values| function.call(*values) }
    private :"rd_#{name}"
  end

  {
    conf_new: "p", conf_set: "ippppz", new: "pippz", topic_new: "pppp", topic_destroy: "vp", destroy: "vp",
    produce: "ipiipzpzp", init_transactions: "ppi", begin_transaction: "pp", commit_transaction: "ppi",
    abort_transaction: "ppi", error_is_fatal: "ip", error_name: "pp", error_destroy: "vp", purge: "ipi", flush: "ipi"
  }.each { |name, signature| native(name, signature) }

  def initialize(topic, settings)
    text = "\0".b * 512
    conf = rd_conf_new
    settings.each do |name, value|
      rd_conf_set(conf, name.to_s, value.to_s, text, text.bytesize).zero? or raise text.unpack1("Z*")
    end
    @rk = rd_new(0, conf, text, text.bytesize)
    raise text.unpack1("Z*") if @rk.null?

    @topic = rd_topic_new(@rk, topic, nil)
  end

  def init_transactions = check(rd_init_transactions(@rk, 30_000))
  def begin_transaction = check(rd_begin_transaction(@rk))
  def commit_transaction = check(rd_commit_transaction(@rk, 5_000))
  def abort_transaction = check(rd_abort_transaction(@rk, 5_000))

  def produce(payload)
    rd_produce(@topic, rand(PARTITIONS), 2, payload, payload.bytesize, nil, 0, nil)
  end

  def close
    rd_purge(@rk, 7)
    rd_flush(@rk, 1_000)
    rd_topic_destroy(@topic)
    rd_destroy(@rk)
  end

  private

  def check(error)
    return if error.null?

    failed = Failed.new(rd_error_name(error).to_s.delete_prefix("_").downcase, !rd_error_is_fatal(error).zero?)
    rd_error_destroy(error)
    raise failed
  end
end

# The same calls with Penstock.
class Ours
  def initialize(topic, settings)
    @topic = topic
    client = Penstock.const_get(:Native)::Client
    @client = client.new("abort-race", settings, Penstock::Poller.instance, Logger.new(nil), 1_000_000, 5_000, 100, 1_000, 0,
                         false, Integer(ENV.fetch("ABORT_WAIT_MS", "1000")), 10_000, 0)
  end

  def init_transactions = @client.init_transactions(30_000)
  def begin_transaction = @client.begin_transaction
  def commit_transaction = @client.commit_transaction(5_000)
  def abort_transaction = @client.abort_transaction(5_000)
  def produce(payload) = @client.produce({ topic: @topic, payload:, partition: rand(PARTITIONS) })
  def close = @client.close(1_000)
end

# One kind of race.
class AbortRace
  def initialize(maker, name, latest_ms:, messages: 1, **settings)
    @maker = maker
    @name = name
    @latest_ms = latest_ms
    @messages = messages
    @topic = "penstock-abort-race-#{rand(2**40)}"
    @settings = { "bootstrap.servers": SERVERS, "transactional.id": @topic, "linger.ms": 0, log_level: 0, **settings }
    @committed = []
    @errors = Hash.new(0)
  end

  def run
    connect
    started = now
    ROUNDS.times { |round| round(round) }
    seconds = now - started
    @producer.close
    puts format("%-8s %-32s %5.1f s  %s  %s", @maker, @name, seconds, readers, @errors)
  end

  private

  def connect
    @producer = @maker.new(@topic, @settings)
    @producer.init_transactions
  end

  def round(round)
    commit = round % 10 == 9
    payloads = Array.new(@messages) { |i| "#{commit ? "commit" : "abort"} #{round} #{i}" }
    @producer.begin_transaction
    payloads.each { |payload| @producer.produce(payload) }
    if commit
      @producer.commit_transaction
      @committed.concat(payloads)
    else
      sleep(rand * @latest_ms / 1_000.0) if @latest_ms.positive?
      @producer.abort_transaction
    end
  rescue StandardError => e
    recover(e)
  end

  def recover(error)
    count(error)
    return @producer.abort_transaction unless error.fatal?

    replace
  rescue StandardError => e
    count(e)
    replace
  end

  def count(error) = @errors["#{"fatal " if error.fatal?}#{error.code}"] += 1

  def replace
    @producer.close
    connect
  end

  def readers
    return "" unless defined?(Reader)

    all, visible = %w[read_uncommitted read_committed].map do |isolation|
      Reader.new(SERVERS, "isolation.level": isolation).read(@topic, partitions: 0...PARTITIONS).map(&:payload)
    end
    format("aborted: %4d stored, %d visible; committed: %d of %d invisible; %d twice",
           all.grep(/abort/).size, visible.grep(/abort/).size, (@committed - visible).size, @committed.size,
           visible.size - visible.uniq.size)
  end

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
end

version = Fiddle::Function.new(Plain::LIBRARY["rd_kafka_version_str"], [], Fiddle::TYPE_VOIDP).call
puts "librdkafka #{version}, #{ROUNDS} rounds each"
[Plain, *(Ours if defined?(Penstock))].each do |maker|
  AbortRace.new(maker, "abort at once", latest_ms: 0).run
  AbortRace.new(maker, "abort within 5 ms", latest_ms: 5).run
  AbortRace.new(maker, "20 messages, abort at once", latest_ms: 0, messages: 20).run
  AbortRace.new(maker, "20 messages, batches of one", latest_ms: 5, messages: 20, "batch.num.messages": 1).run
end
