# frozen_string_literal: true

require "io/wait"

# A real Kafka for tests that need no more of it than topics of their own. One Java process makes them, in some
# milliseconds each (Topics.java beside this file); it lives until the suite ends, and deletes them then. To be made before
# the tests: Java needs seconds to start, and more while another bin/kafka is at work.
class SharedKafka
  # The topic could not be made.
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

  # Blocks until the brokers know it. Any thread may call it.
  def create_topic(topic, partitions: 1)
    answer = @lock.synchronize do
      @java.puts("#{topic} #{partitions}")
      answer_about(topic)
    end
    raise Failed, "#{topic}: #{answer}" unless answer == "ok"
  end

  private

  # Java writes whole lines.
  def answer
    @java.wait_readable(LONGEST) or raise Failed, "Java said nothing for #{LONGEST} s"
    @java.gets
  end

  # A test that was interrupted has left its answer unread, which is passed over.
  def answer_about(topic)
    while (line = answer)
      name, answer = line.chomp.split(" ", 2)
      return answer if name == topic
    end
    raise Failed, "the Java process that makes topics has ended"
  end
end
