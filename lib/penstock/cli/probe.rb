# frozen_string_literal: true

require "io/wait"
require "socket"
require_relative "command"

module Penstock
  module CLI
    # `penstock probe`. Loads neither the application nor Penstock's native part, so it takes little time.
    # @api private
    class Probe < Command
      NAME = "probe"
      USAGE = "TARGET [QUESTION]"
      ABOUT = <<~TEXT
        Asks the probe of a running application, `app.probe`, and prints its answer. The exit status is 0 for
        yes, 1 for no or no answer.

        TARGET is what the application has: http://127.0.0.1:9394, unix:/run/app.sock or file:/run/app.json.
        QUESTION is live (default), ready or started.
      TEXT
      QUESTIONS = %w[live ready started].freeze
      # Seconds that an answer may take, and after which a file is too old.
      TIME = 5
      OLD = 15
      MOST = 1 << 20 # bytes of an answer
      private_constant :QUESTIONS, :TIME, :OLD, :MOST

      private

      def define(_parser) = nil

      def perform(words)
        target, question = check(*words)
        answer = target.start_with?("file:") ? from_file(target.delete_prefix("file:")) : over_socket(target, question)
        found = answer[/"#{question}":(true|false)/, 1] # loading a parser of JSON would take longer than all else
        raise IOError, "what came is not of a probe" unless found

        @out.puts answer
        found == "true" ? 0 : 1
      rescue SystemCallError, SocketError, IOError => e
        @out.puts "no answer: #{e.message}"
        1
      end

      def check(target = nil, question = "live", *more)
        misused("requires a target") unless target
        raise UsageError, "the question must be live, ready or started" unless QUESTIONS.include?(question)

        misused("accepts one question") unless more.empty?

        [target, question]
      end

      def from_file(path)
        age = Time.now - File.mtime(path)
        raise IOError, "the file is old" if age > OLD

        File.read(path, MOST).to_s
      end

      def over_socket(target, question)
        socket = connect(target)
        socket.write("GET /#{question} HTTP/1.0\r\n\r\n")
        answer = read(socket)
        answer.split("\r\n\r\n", 2).last.to_s
      ensure
        socket&.close
      end

      def connect(target)
        return UNIXSocket.new(target.delete_prefix("unix:")) if target.start_with?("unix:")

        host, port = target.match(%r{\Ahttp://(\[[\h:.]+\]|[\w.-]+):(\d{1,5})/?\z})&.captures
        raise UsageError, "the target must begin with http:// and end with a port, or begin with unix: or file:" unless host

        Socket.tcp(host.delete("[]"), Integer(port, 10), connect_timeout: TIME)
      end

      def read(socket)
        deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + TIME
        text = +""
        loop do
          left = deadline - Process.clock_gettime(Process::CLOCK_MONOTONIC)
          raise IOError, "no answer in time" if left <= 0 || text.bytesize > MOST || !socket.wait_readable(left)

          text << socket.read_nonblock(65_536)
        end
      rescue EOFError
        text
      end
    end
  end
end
