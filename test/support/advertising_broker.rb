# frozen_string_literal: true

require "socket"
require "stringio"

# A broker that supports only ApiVersions and Metadata, and advertises any brokers that a test wants. The embedded cluster's
# brokers are always on 127.0.0.1. It has no topics, while the embedded cluster would create them. With `sasl_error` it rejects
# every SASL login, and its answer contains these bytes.
class AdvertisingBroker
  API_VERSIONS = 18
  METADATA = 3
  APIS = { 0 => [0, 7], 1 => [0, 11], METADATA => [0, 2], API_VERSIONS => [0, 0] }.freeze
  SASL_HANDSHAKE = 17
  SASL_AUTHENTICATE = 36
  SASL_APIS = { SASL_HANDSHAKE => [0, 1], SASL_AUTHENTICATE => [0, 0] }.freeze
  UNSUPPORTED_VERSION = 35
  SASL_AUTHENTICATION_FAILED = 58
  UNKNOWN_TOPIC = 3

  attr_reader :address

  # @param cluster_id [String]
  # @param sasl_error [String, nil] the text of each answer to SaslAuthenticate; nil: the broker knows no SASL
  # @yieldparam own [Array(Integer, String, Integer)] its id, host and port
  # @yieldreturn [Array<Array(Integer, String, Integer)>] the brokers that it advertises
  def initialize(cluster_id: "advertised", sasl_error: nil)
    @cluster_id = cluster_id
    @sasl_error = sasl_error
    @apis = sasl_error ? APIS.merge(SASL_APIS) : APIS
    @server = TCPServer.new("127.0.0.1", 0)
    @address = "127.0.0.1:#{@server.addr[1]}"
    own = [1, "127.0.0.1", @server.addr[1]]
    @brokers = block_given? ? yield(own) : [own]
    @threads = Queue.new
    @accepting = Thread.new { accept }
  end

  def close
    @server.close
    @accepting.join
    @threads.pop.kill.join until @threads.empty?
  end

  private

  def accept
    loop do
      socket = @server.accept
      @threads << Thread.new { serve(socket) }
    end
  rescue IOError
    nil # closed
  end

  def serve(socket)
    while (size = socket.read(4))
      key, version, correlation, client, rest = socket.read(size.unpack1("N")).unpack("nnNna*")
      body = [correlation].pack("N") + answer(key, version, rest[client..])
      socket.write([body.bytesize].pack("N"), body)
    end
  rescue SystemCallError, IOError
    nil # gone
  ensure
    socket.close
  end

  def answer(key, version, request)
    case key
    when METADATA then metadata(version, request)
    when SASL_HANDSHAKE then [0, 1].pack("nN") + string("PLAIN")
    when SASL_AUTHENTICATE then [SASL_AUTHENTICATION_FAILED].pack("n") + string(@sasl_error) + [0].pack("N")
    else api_versions(version)
    end
  end

  def api_versions(version)
    apis = @apis.map { |key, (least, most)| [key, least, most].pack("nnn") }.join
    [version.zero? ? 0 : UNSUPPORTED_VERSION, @apis.size].pack("nN") + apis
  end

  # It has no topic.
  def metadata(version, request)
    raise IOError, "Metadata v#{version} is not supported" unless version == 2

    brokers = @brokers.map { |id, host, port| [id].pack("N") + string(host) + [port, -1].pack("Ns>") }
    [brokers.size].pack("N") + brokers.join + string(@cluster_id) + [1].pack("N") + topics(request)
  end

  def topics(request)
    asked = StringIO.new(request)
    names = Array.new(asked.read(4).unpack1("l>").clamp(0..)) { asked.read(asked.read(2).unpack1("n")) }
    [names.size].pack("N") + names.map { |name| [UNKNOWN_TOPIC].pack("n") + string(name) + [0, 0].pack("CN") }.join
  end

  def string(text) = [text.bytesize].pack("n") + text.b
end
