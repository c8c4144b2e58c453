# frozen_string_literal: true

require "socket"

# A proxy in front of each broker of an embedded cluster, which can hold the answer to a request until the test releases it. So a
# test makes the moment that it needs, "the request has no answer yet", instead of sleeping into it.
#
#   gate = BrokerGate.new(cluster.bootstrap_servers)
#   consumer = Penstock::Consumer.new("bootstrap.servers": gate.bootstrap_servers, ...)
#   commit = gate.hold(:offset_commit)
#   consumer.commit(message, async: true)
#   commit.await_request # the broker has the request
#   ...
#   commit.release
#   gate.requests(:offset_commit) # => 1
#
# Clients that use the cluster's own addresses pass by. Answers to later requests overtake a held one. librdkafka allows that,
# because it finds the request of an answer by its correlation id.
#
# The embedded cluster's brokers advertise their own addresses, and no setting of librdkafka's mock cluster changes that. So the
# gate replaces the ports in the answers that contain addresses. A port is a fixed number of bytes, behind the host, in every
# version of these answers. All other bytes pass unchanged.
class BrokerGate
  API_KEYS = Penstock::EmbeddedCluster::API_KEYS
  ADDRESSES_IN = API_KEYS.values_at(:metadata, :find_coordinator).freeze
  HOST = "127.0.0.1"
  LONGEST = 20 # seconds that a test waits for a request

  # One answer that is held, or will be.
  class Hold
    def initialize
      @lock = Mutex.new
      @changed = ConditionVariable.new
      @requested = @released = false
    end

    # Waits until the broker has the request. The client gets no answer before `release`.
    # @return [void]
    def await_request
      deadline = now + LONGEST
      @lock.synchronize do
        @changed.wait(@lock, 1) until @requested || now > deadline
        raise "no such request within #{LONGEST} s" unless @requested
      end
    end

    def release
      @lock.synchronize do
        @released = true
        @deliver&.call
        @deliver = nil
      end
    end

    # For the gate.
    def requested
      @lock.synchronize do
        @requested = true
        @changed.broadcast
      end
    end

    # For the gate: the block passes the answer on, now or when it is released.
    def answered(&deliver)
      @lock.synchronize { @released ? deliver.call : @deliver = deliver }
    end

    private

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end

  # One client's connection to one broker.
  class Connection
    def initialize(gate, client, port)
      @gate = gate
      @client = client
      @broker = TCPSocket.new(HOST, port)
      @lock = Mutex.new
      @asked = {} # [API key, hold] by correlation id
      [@client, @broker].each { |socket| socket.setsockopt(Socket::IPPROTO_TCP, Socket::TCP_NODELAY, 1) }
    end

    # @return [Array<Thread>]
    def threads = [Thread.new { run { pass_request } }, Thread.new { run { pass_answer } }]

    def close = [@client, @broker].each(&:close)

    private

    # Until either side closes its end. Then the other side's end is closed, too.
    def run
      loop { yield or break }
    rescue SystemCallError, IOError
      nil # gone
    ensure
      [@client, @broker].each { |socket| shut(socket) }
    end

    def shut(socket)
      socket.shutdown
    rescue SystemCallError, IOError
      nil # gone
    end

    def read(socket)
      size = socket.read(4) and socket.read(size.unpack1("N"))
    end

    def write(socket, frame) = @lock.synchronize { socket.write([frame.bytesize].pack("N"), frame) }

    def pass_request
      frame = read(@client) or return
      key, _version, correlation = frame.unpack("nnN")
      hold = @gate.request(key)
      @asked[correlation] = [key, hold]
      write(@broker, frame)
      hold&.requested
      true
    end

    def pass_answer
      frame = read(@broker) or return
      key, hold = @asked.delete(frame.unpack1("N"))
      frame = @gate.with_own_ports(frame) if ADDRESSES_IN.include?(key)
      hold ? hold.answered { deliver(frame) } : write(@client, frame)
      true
    end

    # On the thread that releases the answer.
    def deliver(frame)
      write(@client, frame)
    rescue SystemCallError, IOError
      nil # the client is gone
    end
  end

  # @return [String] the addresses of the gate
  attr_reader :bootstrap_servers

  # @param servers [String] the cluster's
  def initialize(servers)
    @lock = Mutex.new
    @requests = Hash.new(0)
    @holds = []
    @waiting = Hash.new { |all, key| all[key] = [] }
    @connections = []
    @threads = []
    ports = servers.split(",").map { |address| Integer(address[/\d+\z/]) }
    @servers = ports.to_h { |port| [port, TCPServer.new(HOST, 0)] }
    @own_ports = @servers.to_h { |port, server| [address(port), address(server.addr[1])] }
    @bootstrap_servers = @servers.each_value.map { |server| "#{HOST}:#{server.addr[1]}" }.join(",")
    @accepting = @servers.map { |port, server| Thread.new { accept(server, port) } }
  end

  # Holds the answer to the next request of that kind, which no earlier hold is for.
  # @param api [Symbol] see EmbeddedCluster::API_KEYS
  # @param after [Integer] how many requests pass before
  # @return [Hold]
  def hold(api, after: 0)
    @lock.synchronize do
      Hold.new.tap do |hold|
        @holds << hold
        @waiting[API_KEYS.fetch(api)].push(*[nil] * after, hold)
      end
    end
  end

  # @return [Integer] how many requests of that kind the brokers got through the gate
  def requests(api) = @lock.synchronize { @requests[API_KEYS.fetch(api)] }

  # Releases what is held, and holds nothing from now on.
  def open
    @lock.synchronize { @waiting.clear && @holds.dup }.each(&:release)
  end

  def close
    open
    @servers.each_value(&:close)
    @accepting.each(&:join)
    connections, threads = @lock.synchronize { [@connections, @threads] }
    connections.each(&:close)
    threads.each(&:join)
  end

  # For connections.
  # @return [Hold, nil] what holds the answer
  def request(key)
    @lock.synchronize do
      @requests[key] += 1
      @waiting[key].shift
    end
  end

  # For connections.
  def with_own_ports(frame) = @own_ports.inject(frame) { |bytes, (from, to)| bytes.gsub(from) { to } }

  private

  # As answers have it.
  def address(port) = HOST.b + [port].pack("N")

  def accept(server, port)
    loop { serve(server.accept, port) }
  rescue IOError
    nil # closed
  end

  def serve(client, port)
    connection = Connection.new(self, client, port)
    @lock.synchronize do
      @connections << connection
      @threads.concat(connection.threads)
    end
  rescue SystemCallError
    client.close # the broker is down
  end
end
