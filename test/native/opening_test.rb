# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/slow_calls"

# librdkafka takes long to make a client if the CA bundle is large. Meanwhile other Ruby threads run, even those that use the
# client.
class OpeningTest < PenstockTest
  slow(/while_a_client_is_made/)
  alone(/while_a_client_is_made/)

  include SlowCalls

  PROGRAM = <<~'RUBY'
    servers, what = ARGV
    one = Penstock::Producer.new { |config| config.kafka = { "bootstrap.servers": servers, "client.id": "slow" } }
    client = Internal.of(one).build_client(one.config.kafka)

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

    opening = Thread.new { client.connect }
    asking = Thread.new do
      sleep 0.2
      case what
      when "error" then client.timeout_error("a test", "t") # reads the client's last error
      when "credentials" then client.set_credentials("me", "secret")
      when "close" then client.close(1_000)
      when "connect" then client.connect
      end
    rescue Penstock::Error
      nil
    end
    longest = 0
    last = now
    while opening.alive?
      sleep 0.005
      longest = [longest, now - last].max
      last = now
    end
    asking.join
    opening.join rescue nil
    client.close(0)
    puts longest
  RUBY

  %w[error credentials close connect].each do |what|
    define_method("test_other_threads_run_while_a_client_is_made_and_a_thread_asks_it_for_#{what}") do
      longest = Float(slow!(PROGRAM, cluster.bootstrap_servers, what, new_ms: 1_500))
      assert_operator longest, :<, 0.7, "s without a turn for another thread, of 1.5"
    end
  end
end
