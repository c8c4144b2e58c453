# frozen_string_literal: true

# What bin/demo --app shows once everything is built: an application, while a member joins and leaves its group, some messages are
# poison, a partition is slow, and a broker fails.

require "json"
require "optparse"
require "penstock/app"

# Counts what happens, on any thread, and notices what must not.
class DemoLedger
  attr_reader :repeated, :out_of_order, :retries, :in_work

  def initialize
    @lock = Mutex.new
    @processed = {} # by number
    @latest = {} # number by key
    @buried = {} # by partition and offset
    @repeated = @out_of_order = @retries = @in_work = 0
  end

  def begin_message = @lock.synchronize { @in_work += 1 }
  def end_message = @lock.synchronize { @in_work -= 1 }
  def retry = @lock.synchronize { @retries += 1 }
  def bury(place) = @lock.synchronize { @buried[place] = true }

  # A message that comes again may be behind later ones of its key.
  def process(key, number)
    @lock.synchronize do
      if @processed[number]
        @repeated += 1
      else
        @out_of_order += 1 if @latest.fetch(key, -1) > number
        @latest[key] = number
      end
      @processed[number] = true
    end
  end

  # @return [Integer] different messages
  def processed = @processed.size
  def dead = @buried.size
end

# Producers, and an application with one member, then two, then one again.
class DemoApp
  PARTITIONS = 6
  KEYS = 200
  SLOW = 5 # partition
  HEAD = "%4s %7s %9s %6s %8s %8s %8s %7s %6s  %s"
  ROW = "%4d %7d %9d %6d %8d %8d %8d %7d %6d  %s"
  JOINING = 30
  DRAINING = 60 # seconds without progress
  AWAY = 3 # seconds without a broker

  # @param kafka [String, nil] the name under which `bin/kafka` has started the cluster, whose broker may be killed
  def initialize(seconds:, rate:, bootstrap:, kafka:, json:)
    @kafka = kafka
    @seconds = seconds
    @rate = rate
    @bootstrap = bootstrap
    @json = json
    @ledger = DemoLedger.new
    run = "#{Process.pid}-#{rand(2**32)}"
    @topic = "penstock-demo-orders-#{run}"
    @dead = "penstock-demo-dead-#{run}"
    @group = "penstock-demo-#{run}"
    @sent = @poison = 0
  end

  def run
    cluster = Penstock::EmbeddedCluster.new unless @bootstrap
    @servers = @bootstrap || cluster.bootstrap_servers
    @cluster = cluster
    make_topics(cluster)
    app = application
    introduce(cluster)
    members = [start(app)]
    act(app, members)
    @broker&.join
    reports = members.map(&:stop)
    conclude(reports, cluster)
  ensure
    clear_away unless cluster
    cluster&.close
  end

  private

  def introduce(cluster)
    puts "An application on #{cluster ? "an embedded cluster" : "Kafka"} at #{@servers}, with the order of keys,",
         "#{PARTITIONS} partitions and 10 threads, gets #{@rate} messages a second for #{@seconds} s. Every 100th is poison,",
         "every 50th fails twice, and each message of partition #{SLOW} takes 50 ms.", ""
  end

  def make_topics(cluster)
    partitions = { @topic => PARTITIONS, @dead => 1 }
    return partitions.each { |name, count| cluster.create_topic(name, partitions: count) } if cluster

    @admin = Penstock::Admin.new("bootstrap.servers": @servers)
    @admin.create_topics(partitions.transform_values { |count| { partitions: count } }).raise!
  end

  def clear_away
    @admin&.delete_topics(@topic, @dead)
    @admin&.delete_groups(@group)
    @admin&.close
  end

  def application
    ledger = @ledger
    processor = Class.new(Penstock::Processor) do
      define_method(:process) do |message|
        ledger.begin_message
        number, kind = message.value
        return reject("poison") if kind == "poison"
        raise "not yet" if kind == "fails" && attempt <= 2

        sleep(message.partition == SLOW ? 0.05 : 0.001)
        ledger.process(message.key, number)
      ensure
        ledger.end_message
      end
    end
    Penstock.app do |app|
      app.kafka = { "bootstrap.servers": @servers, log_level: 3 }
      app.threads = 10
      app.commit_interval = 1
      app.monitor.subscribe("consumer.consuming.retry") { ledger.retry }
      app.monitor.subscribe("error.occurred") { nil } # or each failure is a line on stderr, among the table
      app.monitor.subscribe("dead_letter_queue.dispatched") { |event| ledger.bury(event.payload.values_at(:partition, :offset)) }
      app.group(@group, kafka: { "session.timeout.ms": 6_000 }) do |group|
        group.topic @topic, to: processor, order: :key, value: :json, dead_letter: @dead, retry: { times: 5, from: 0.2, to: 2 }
      end
    end
  end

  def start(app)
    server = app.start
    wait(JOINING) { server.health.ready? } or raise "the application has not joined its group within #{JOINING} s"
    server
  end

  # Sends, and lets things happen, once a second.
  def act(app, members)
    puts format(HEAD, "s", "sent", "processed", "lag", "waiting", "in work", "retries", "dead", "/s", "")
    sender = Thread.new { send_all }
    before = second = idle = 0
    until finished?(sender) || idle > DRAINING
      note = happen(app, members, second)
      sleep 1
      line(members, second += 1, before, note)
      idle = sender.alive? || @ledger.processed > before ? 0 : idle + 1
      before = @ledger.processed
    end
    sender.value
  end

  def happen(app, members, second)
    case second
    when @seconds / 3
      members << app.start
      "a second member joins"
    when @seconds / 2 then break_broker
    when @seconds * 2 / 3
      members.pop.stop
      "it leaves"
    when @seconds then "nothing more is sent"
    end
  end

  # Lag and waiting messages are those of the applications' own metrics.
  def line(members, second, before, note)
    done = @ledger.processed
    rows = members.flat_map(&:metrics)
    puts format(ROW, second, @sent, done, rows.sum { |row| row.lag.to_i }, rows.sum(&:waiting), @ledger.in_work, @ledger.retries,
                @ledger.dead, done - before, note)
  end

  def breaks? = @cluster || @kafka

  def break_broker
    return unless breaks?

    @broker = Thread.new do
      @cluster ? @cluster.broker_down(1) : restart("kill")
      sleep AWAY
      @cluster ? @cluster.broker_up(1) : restart("start")
    end
    "the broker fails; it is back in #{AWAY} s or more"
  end

  def restart(command)
    system(File.expand_path("../kafka", __dir__), command, "1", "--name", @kafka, out: File::NULL, err: File::NULL) or
      raise "bin/kafka #{command} 1 has failed"
  end

  def finished?(sender) = !sender.alive? && @ledger.processed + @ledger.dead >= @sent

  def send_all
    producer = Penstock::Producer.new("bootstrap.servers": @servers, log_level: 3)
    (@seconds * 10).times do
      started = now
      producer.produce_many_sync(Array.new(@rate / 10) { message })
      sleep [0.1 - (now - started), 0].max
    end
    producer.close
  end

  def message
    number = @sent
    kind = { 99 => "poison", 20 => "fails", 70 => "fails" }[number % 100]
    @poison += 1 if kind == "poison"
    @sent += 1
    { topic: @topic, key: "k#{number % KEYS}", payload: JSON.generate([number, kind]) }
  end

  def conclude(reports, cluster)
    lost = @sent - @poison - @ledger.processed
    ended = reports.all?(&:complete?)
    puts "", "#{@ledger.processed} of #{@sent - @poison} good messages processed, #{lost} lost",
         "#{@ledger.dead} of #{@poison} poison messages in the dead letters",
         "#{@ledger.out_of_order} processed out of the order of their key; #{@ledger.retries} retries",
         "#{@ledger.repeated} came twice#{", as the embedded cluster refuses commits in a rebalance" if cluster}",
         "the end of each member: #{reports.map(&:to_s).uniq.join("; ")}"
    puts "librdkafka #{Penstock.librdkafka_version}, Ruby #{RUBY_VERSION}"
    show_json(lost) if @json
    ended && lost.zero? && @ledger.dead == @poison && @ledger.out_of_order.zero?
  end

  def show_json(lost)
    puts JSON.generate(sent: @sent, processed: @ledger.processed, dead: @ledger.dead, lost:, repeated: @ledger.repeated,
                       out_of_order: @ledger.out_of_order, retries: @ledger.retries)
  end

  def wait(seconds)
    deadline = now + seconds
    sleep 0.05 until (found = yield) || now > deadline
    found
  end

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
end

options = { seconds: 18, rate: 500, bootstrap: nil, kafka: nil, json: false }
parser = OptionParser.new do |opts|
  %i[seconds rate].each do |name|
    opts.on("--#{name} N", Integer) do |value|
      raise OptionParser::InvalidArgument, "must be at least 10" unless value >= 10

      options[name] = value
    end
  end
  opts.on("--bootstrap SERVERS") { |value| options[:bootstrap] = value }
  opts.on("--kafka NAME") { |value| options[:kafka] = value } # from bin/demo
  opts.on("--json") { options[:json] = true }
end
begin
  parser.parse!
  raise OptionParser::InvalidArgument, ARGV.join(" ") unless ARGV.empty?
rescue OptionParser::ParseError => e
  abort "bin/demo --app: #{e.message}; see bin/demo --help"
end

$stdout.sync = true
exit DemoApp.new(**options).run
