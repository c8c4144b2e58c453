# frozen_string_literal: true

require "socket"
require_relative "plain_scheduler"

# A gate that threads can pass only while it is open.
class Gate
  def initialize
    @lock = Thread::Mutex.new
    @opened = Thread::ConditionVariable.new
    @open = false
  end

  def open
    @lock.synchronize do
      @open = true
      @opened.broadcast
    end
    yield
  ensure
    @lock.synchronize { @open = false }
  end

  # Waits until the gate is open. The gate closes only after the block has ended.
  def pass
    @lock.synchronize do
      @opened.wait(@lock) until @open
      yield
    end
  end
end

# A scheduler that opens a gate only while it sleeps itself. A wait that blocks its thread instead leaves the gate closed, so that
# what it waits for never arrives.
class GateScheduler < PlainScheduler
  def initialize(gate)
    super()
    @gate = gate
  end

  private

  def look(...) = @gate.open { super }
end

# A proxy between clients and the brokers of a cluster on 127.0.0.1. The brokers' answers wait for the gate. Answers with a
# broker's address get the proxy's address instead.
class GatedCluster
  HOST = "127.0.0.1"

  # @return [Gate]
  attr_reader :gate

  # @param servers [String] as for "bootstrap.servers"
  def initialize(servers)
    @gate = Gate.new
    @sockets = Thread::Queue.new
    @threads = Thread::Queue.new
    @doors = servers.split(",").to_h { |server| [Integer(server[/\d+\z/]), TCPServer.new(HOST, 0)] }
    @doors.each { |port, door| start { loop { connect(door.accept, port) } } }
  end

  def bootstrap_servers = @doors.each_value.map { |door| "#{HOST}:#{door.addr[1]}" }.join(",")

  def close
    @doors.each_value(&:close)
    @threads.pop.kill.join until @threads.empty?
    @sockets.pop.close until @sockets.empty?
  end

  private

  def connect(client, port)
    broker = TCPSocket.new(HOST, port)
    [client, broker].each { |socket| @sockets << socket }
    start { loop { broker.write(client.readpartial(65_536)) } }
    start do
      loop do
        size = broker.read(4) or raise EOFError
        answer = with_our_addresses(broker.read(size.unpack1("N")))
        @gate.pass { client.write(size, answer) }
      end
    ensure
      client.close
    end
  end

  # Both addresses have the same length.
  def with_our_addresses(answer)
    @doors.each { |port, door| answer.gsub!(address(port), address(door.addr[1])) }
    answer
  end

  def address(port) = "#{HOST}#{[port].pack("N")}".b

  def start
    @threads << Thread.new do
      yield
    rescue IOError, SystemCallError
      nil # one side has closed the connection
    end
  end
end
