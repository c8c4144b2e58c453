# frozen_string_literal: true

require "socket"
require_relative "hostile_broker/answer"
require_relative "hostile_broker/records"
require_relative "hostile_broker/good_answers"

# A broker that lies. It supports enough of Kafka to bring a producer, a consumer or the doctor to each of its requests. It passes
# every request to an attack, which may answer with anything. Requests that the attack ignores get a good answer.
#
#     HostileBroker.new { |exchange| exchange.cut if exchange.api == :produce }
class HostileBroker
  # Ends the connection.
  class Cut < StandardError; end

  Request = Struct.new(:api, :version, :correlation, :body, :count) do
    # @return [Boolean] whether a Fetch request names the topic, and does not only keep its session alive
    def fetches = body.include?(GoodAnswers::TOPIC)

    # @return [Integer] the offset from which a Fetch request, version 11, reads the topic
    def fetch_offset
      place = body.index(GoodAnswers::TOPIC)
      place ? body[(place + GoodAnswers::TOPIC.bytesize)..].unpack("l>l>l>q>").last.clamp(0..) : 0
    end
  end

  # What a broker says of its cluster: the port of each broker by its id, and the id of the coordinator of all groups.
  Cluster = Struct.new(:ports, :coordinator)

  # One request, and the possible answers.
  class Exchange
    attr_reader :request, :answer

    def initialize(socket, request, answer)
      @socket = socket
      @request = request
      @answer = answer
      @settled = false
    end

    def api = request.api

    # @return [String] a complete response
    def frame(body = answer.to_s, correlation: request.correlation, length: nil)
      header = [correlation].pack("l>")
      header += "\0".b if answer.flexible? && api != :api_versions
      [length || (header.bytesize + body.bytesize)].pack("l>") + header + body
    end

    # Writes the bytes unchanged. The request counts as answered.
    def send(bytes)
      @settled = true
      @socket.write(bytes)
    end

    def respond(body = answer.to_s) = send(frame(body))

    # Leaves the request without an answer.
    def ignore = @settled = true

    def cut = raise(Cut)

    def settled? = @settled
  end

  EMPTY_FETCH = 0.01 # seconds that an honest broker waits for messages

  attr_reader :port, :address

  # @return [Cluster] at first the broker is alone, with the id 1
  attr_accessor :cluster

  # @yieldparam exchange [Exchange]
  def initialize(&attack)
    @attack = attack
    @lock = Mutex.new
    @counts = Hash.new(0)
    @server = TCPServer.new("127.0.0.1", 0)
    @port = @server.addr[1]
    @address = "127.0.0.1:#{@port}"
    @cluster = Cluster.new({ 1 => @port }, 1)
    @threads = {}
    @accepting = Thread.new { accept }
  end

  # @return [Hash{Symbol => Integer}] :connections, and requests by their names
  def counts = @lock.synchronize { @counts.dup }

  def close
    @server.close
    @accepting.join
    threads = @lock.synchronize { @threads.dup }
    threads.each_value { |socket| close_socket(socket) }
    threads.each_key { |thread| thread.kill.join }
  end

  private

  def accept
    loop do
      socket = @server.accept
      socket.setsockopt(Socket::IPPROTO_TCP, Socket::TCP_NODELAY, 1)
      @lock.synchronize do
        @counts[:connections] += 1
        @threads[Thread.new { serve(socket) }] = socket
      end
    end
  rescue IOError, SystemCallError
    nil # the server is closed
  end

  def serve(socket)
    while (request = read(socket))
      exchange = Exchange.new(socket, request, GoodAnswers.new(@cluster).to(request))
      @attack&.call(exchange)
      answer_honestly(exchange) unless exchange.settled?
    end
  rescue SystemCallError, IOError, Cut
    nil # the client has closed the connection, or the attack ends it
  ensure
    close_socket(socket)
    @lock.synchronize { @threads.delete(Thread.current) }
  end

  def read(socket)
    size = socket.read(4) or return
    key, version, correlation, rest = socket.read(size.unpack1("N")).unpack("s>s>l>a*")
    name, = GoodAnswers::APIS.fetch(key) { raise Cut } # an attack has advertised another API
    Request.new(name, version, correlation, rest, @lock.synchronize { @counts[name] += 1 })
  end

  def answer_honestly(exchange)
    sleep EMPTY_FETCH if exchange.api == :fetch && exchange.request.fetch_offset >= GoodAnswers::STORED
    exchange.respond
  end

  def close_socket(socket)
    socket.close
  rescue IOError, SystemCallError
    nil
  end
end
