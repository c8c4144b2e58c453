# frozen_string_literal: true

require "socket"

# What the admin client's tests share.
class AdminTestCase < PenstockTest
  class Interrupted < StandardError; end

  # Each asks in another way: by a request that librdkafka answers with an event, and by a blocking function on a thread.
  WAYS = {
    "a_request" => ->(one, **options) { one.create_topic("test", **options) },
    "a_question" => ->(one, **options) { one.topics(**options) }
  }.freeze

  def setup
    super
    @admins = []
    @servers = []
  end

  def teardown
    GCLevel.stop
    @admins.each { |admin| admin.close(timeout: 5) }
    @servers.each(&:close)
    @admins = @servers = nil
    super
  end

  # An admin client on the shared cluster, closed after the test. Further settings for librdkafka as keywords.
  def admin(servers: cluster.bootstrap_servers, **kafka)
    made = Penstock::Admin.new do |config|
      config.kafka = { "bootstrap.servers": servers, log_level: 0, **kafka }
      yield config if block_given?
    end
    made.tap { @admins << made }
  end

  def unreachable_admin(&block) = admin(servers: "127.0.0.1:1", &block)

  # The client of a broker that accepts connections, and never answers.
  def frozen_admin(&block) = admin(servers: frozen_broker, &block)

  # @return [String] its address
  def frozen_broker
    server = TCPServer.new("127.0.0.1", 0) # the system accepts the connections
    @servers << server
    "127.0.0.1:#{server.local_address.ip_port}"
  end

  # @return [String] the address of a port that accepts connections, and closes each without an answer
  def port_that_hangs_up(port = 0)
    server = TCPServer.new("127.0.0.1", port)
    @servers << server
    Thread.new do
      loop { server.accept.tap { |socket| socket.readpartial(100) }.close }
    rescue IOError, SystemCallError
      retry unless server.closed?
    end
    "127.0.0.1:#{server.local_address.ip_port}"
  end

  # Calls in a thread of its own.
  # @return [Thread] which waits inside of the call
  def waiting(one, way)
    thread = quiet_thread { way.call(one, timeout: 60) }
    eventually { thread.stop? && one.state == :open }
    thread
  end

  # @return [Integer] bytes, after the GC
  def resident
    3.times { GC.start }
    Integer(File.read("/proc/self/status")[/VmRSS:\s+(\d+)/, 1]) * 1024
  end
end
