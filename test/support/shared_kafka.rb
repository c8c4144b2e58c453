# frozen_string_literal: true

require "io/wait"
require "rbconfig"

# A real Kafka for tests that need only their own topics. A process of its own creates them, in some milliseconds each: some tests
# count this process's clients. It runs until the suite ends, and then deletes the topics.
class SharedKafka
  # The topic could not be created.
  class Failed < StandardError; end

  LONGEST = 60 # seconds for an answer
  LIBRARY = File.expand_path("../../lib", __dir__)
  # For each line "NAME PARTITIONS" it says "NAME ok", or "NAME" and what went wrong.
  PROGRAM = <<~'RUBY'
    $stdout.sync = true
    admin = Penstock::Admin.new("bootstrap.servers": ARGV.first, log_level: 0)
    made = []
    while (name, partitions = $stdin.gets&.split)
      begin
        admin.create_topic(name, partitions: Integer(partitions))
        made << name
        puts "#{name} ok"
      rescue Penstock::Error, ArgumentError => e
        puts "#{name} #{e.message.tr("\n", " ")}"
      end
    end
    begin
      admin.delete_topics(*made, wait: false) # a test has deleted some, or the Kafka is gone
    rescue Penstock::Error
      nil
    end
  RUBY

  # @return [String]
  attr_reader :bootstrap_servers

  def initialize(servers = ENV.fetch("PENSTOCK_KAFKA") { abort "no Kafka: run bin/test --on-kafka, or set PENSTOCK_KAFKA" })
    @bootstrap_servers = servers
    @lock = Mutex.new
    @maker = IO.popen([RbConfig.ruby, "-I", LIBRARY, "-r", "penstock", "-e", PROGRAM, servers], "r+")
    @maker.sync = true
    Minitest.after_run { @maker.close } # waits for its end
  end

  # Blocks until the brokers know the topic. Any thread may call it.
  def create_topic(topic, partitions: 1)
    answer = @lock.synchronize do
      @maker.puts("#{topic} #{partitions}")
      answer_about(topic)
    end
    raise Failed, "#{topic}: #{answer}" unless answer == "ok"
  end

  private

  # The maker writes complete lines.
  def answer
    @maker.wait_readable(LONGEST) or raise Failed, "no answer within #{LONGEST} s"
    @maker.gets
  end

  # An interrupted test leaves its answer unread. Such an answer is skipped.
  def answer_about(topic)
    while (line = answer)
      name, answer = line.chomp.split(" ", 2)
      return answer if name == topic
    end
    raise Failed, "the process that makes topics has ended"
  end
end
