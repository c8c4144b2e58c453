# frozen_string_literal: true

require "io/wait"

# A real Kafka for tests that need only their own topics. One Java process creates them, in some milliseconds each (Topics.java
# beside this file). It runs until the suite ends, and then deletes them. Start it before the tests: Java needs seconds to start,
# and longer while another bin/kafka runs.
class SharedKafka
  # The topic could not be created.
  class Failed < StandardError; end

  LONGEST = 60 # seconds for an answer
  COMMAND = [File.expand_path("../../bin/kafka", __dir__), "java", File.join(__dir__, "Topics.java")].freeze

  # @return [String]
  attr_reader :bootstrap_servers

  def initialize(servers = ENV.fetch("PENSTOCK_KAFKA") { abort "no Kafka: run bin/test --on-kafka, or set PENSTOCK_KAFKA" })
    @bootstrap_servers = servers
    @lock = Mutex.new
    @java = IO.popen([*COMMAND, servers], "r+")
    @java.sync = true
    Minitest.after_run { @java.close } # waits for its end
    raise Failed, "Java did not start" unless answer == "ready\n"
  end

  # Blocks until the brokers know the topic. Any thread may call it.
  def create_topic(topic, partitions: 1)
    answer = @lock.synchronize do
      @java.puts("#{topic} #{partitions}")
      answer_about(topic)
    end
    raise Failed, "#{topic}: #{answer}" unless answer == "ok"
  end

  private

  # Java writes complete lines.
  def answer
    @java.wait_readable(LONGEST) or raise Failed, "Java did not answer within #{LONGEST} s"
    @java.gets
  end

  # An interrupted test leaves its answer unread. Such an answer is skipped.
  def answer_about(topic)
    while (line = answer)
      name, answer = line.chomp.split(" ", 2)
      return answer if name == topic
    end
    raise Failed, "the Java process that makes topics has ended"
  end
end
