# frozen_string_literal: true

require "io/wait"
require "json"
require "socket"

module Penstock
  class App
    # Tells others how an application is: over HTTP, on a local socket, or in a file. On a thread of its own, which takes no lock
    # that others hold.
    #
    # Each answer to `GET /live`, `/ready` or `/started` is the {Health} as JSON, with the status 200 or 503. `/metrics` has
    # {Server#metrics} for Prometheus.
    # @api private
    class Probe
      include ShortInspect

      # Where: `kind` is :http, :unix or :file.
      Target = Struct.new(:kind, :host, :port, :path)
      FORMS = '"http://127.0.0.1:9394", "unix:/run/app.sock" or "file:/run/app.json"'
      QUESTIONS = { "/live" => :live?, "/ready" => :ready?, "/started" => :started? }.freeze
      # Bytes of a request, and seconds that it may take.
      LONGEST = 8_192
      TIME = 1
      LONGEST_ANSWER = 5
      MOST = 16 # clients at the same time
      # Seconds between two writings of the file.
      EVERY = 1
      # Seconds after an error.
      PAUSE = 0.1
      PROMETHEUS = "text/plain; version=0.0.4"
      private_constant :Target, :QUESTIONS, :LONGEST, :TIME, :LONGEST_ANSWER, :MOST, :EVERY, :PAUSE, :PROMETHEUS

      class << self
        # @param text [String]
        # @return [Target, nil] nil: it is no target
        def parse(text)
          return unless text.is_a?(String)

          kind, path = text.match(/\A(unix|file):([^\0]+)\z/)&.captures
          return Target.new(kind.to_sym, nil, nil, path) if kind

          host, port = text.match(%r{\Ahttp://(\[[\h:.]+\]|[\w.-]+):(\d{1,5})/?\z})&.captures
          Target.new(:http, host.delete("[]"), Integer(port, 10)) if host && port.to_i <= 65_535
        end
      end

      # Takes the place. Nobody is answered before {#start}.
      # @param target [Target]
      # @raise [ConfigurationInvalidError] when it cannot be had
      def initialize(target)
        @target = target
        @clients = []
        @server = open
      rescue SystemCallError, SocketError => e
        raise ErrorFactory.build(ConfigurationInvalidError, "app.probe cannot be opened: #{e.message}")
      end

      # @param about [Server]
      def start(about)
        @about = about
        @thread = Threads.start("penstock.probe") { @server ? serve : keep_writing }
      end

      # @return [Integer, nil] of HTTP
      def port = @target.kind == :http ? @server.local_address.ip_port : nil

      # Nobody is answered any more, and the file or socket is removed.
      def close
        [@thread, *@clients].compact.each { |thread| thread.kill.join }
        @server&.close
        File.unlink(@target.path) if @target.path
      rescue Errno::ENOENT
        nil
      end

      private

      def open
        case @target.kind
        when :http then TCPServer.new(@target.host, @target.port)
        when :unix
          remove_stale_socket
          UNIXServer.new(@target.path)
        else raise Errno::ENOENT, File.dirname(@target.path) unless File.directory?(File.dirname(@target.path))
        end
      end

      # Of a process that was killed.
      def remove_stale_socket
        return unless File.socket?(@target.path)

        UNIXSocket.new(@target.path).close
      rescue Errno::ECONNREFUSED
        File.unlink(@target.path)
      end

      def keep_writing
        loop do
          write
          sleep EVERY
        end
      end

      # Readers never see half of it. After an error, such as a full disk, the file gets old, which is an answer, too.
      def write
        new = "#{@target.path}.#{Process.pid}"
        File.write(new, JSON.generate(@about.health.as_json))
        File.rename(new, @target.path)
      rescue StandardError
        nil
      end

      # Each client has a thread, so that one that is slow keeps nobody waiting.
      def serve
        loop do
          client = @server.accept
          @clients.select!(&:alive?)
          next client.close if @clients.size >= MOST

          @clients << Threads.start("penstock.probe-client") { answer(client) }
        end
      rescue SystemCallError # no descriptor is left, for example
        sleep PAUSE
        retry
      end

      def answer(client)
        request = read(client)
        respond(client, *reply(request)) if request
      rescue SystemCallError, IOError
        nil # the other side has gone
      ensure
        client.close
      end

      # @return [String, nil] the head of a request; nil if it does not come in time, or is too long
      def read(client)
        deadline = Deadline.new(TIME)
        text = "".b
        until text.match?(/\r?\n\r?\n/n)
          return if text.bytesize > LONGEST || !client.wait_readable(deadline.left)

          part = client.read_nonblock(LONGEST, exception: false) or return
          text << part unless part == :wait_readable
        end
        text
      end

      # @return [Array(String, String, String)] status, body, and what it is unless it is JSON
      def reply(request)
        path = request[%r{\A(?:GET|HEAD) (/[a-z]*)(?:\?[^ ]*)? HTTP/1\.[01]\r?\n}, 1]
        return ["200 OK", Metrics.to_prometheus(@about.metrics), PROMETHEUS] if path == "/metrics"

        question = QUESTIONS[path] or return ["404 Not Found", "{\"error\":\"ask for /live, /ready, /started or /metrics\"}"]

        health = @about.health
        [health.public_send(question) ? "200 OK" : "503 Service Unavailable", JSON.generate(health.as_json)]
      end

      def respond(client, status, body, type = "application/json")
        write_all(client, "HTTP/1.1 #{status}\r\nContent-Type: #{type}\r\nContent-Length: #{body.bytesize}\r\n" \
                          "Cache-Control: no-store\r\nConnection: close\r\n\r\n#{body}".b)
      end

      # A client that reads nothing is left after some time.
      def write_all(client, bytes)
        deadline = Deadline.new(LONGEST_ANSWER)
        until bytes.empty?
          written = client.write_nonblock(bytes, exception: false)
          next bytes = bytes.byteslice(written..) unless written == :wait_writable
          return unless client.wait_writable(deadline.left)
        end
      end
    end
    private_constant :Probe
  end
end
