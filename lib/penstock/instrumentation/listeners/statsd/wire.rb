# frozen_string_literal: true

require "socket"

module Penstock
  module Listeners
    class Statsd < MetricsListener
      # Writes StatsD's lines and sends them over UDP, as many as go into a datagram. Never waits for room to send: what
      # cannot be sent at once is dropped and counted. Looking up a host's name may take its time, so this is for the
      # listener's thread. One thread at a time.
      # @api private
      class Wire
        # Bytes of a datagram, so that it goes through any network in one piece.
        DATAGRAM = 1_432
        private_constant :DATAGRAM

        # @return [Integer] datagrams handed to the system
        attr_reader :sent
        # @return [Integer] datagrams that were not
        attr_reader :dropped

        def initialize(host, port, tags, dogstatsd, distribution)
          @host = host
          @port = port
          @tags = tags
          @dogstatsd = dogstatsd
          @timing = distribution ? "d" : "h"
          @timing = "ms" unless dogstatsd
          @buffer = +""
          @sent = @dropped = 0
        end

        def count(name, value, tags) = line(name, value, "c", tags)

        def gauge(name, value, tags) = line(name, value, "g", tags)

        # @param share [Float] of the values that there were
        def timing(name, value, tags, share)
          line(name, value.round(3), share < 1 ? "#{@timing}|@#{share.round(6)}" : @timing, tags)
        end

        # Sends what is left.
        # @raise [SystemCallError, SocketError] why datagrams were dropped
        def flush
          send_datagram
          error = @error
          @error = nil
          raise error if error
        end

        def close
          @socket&.close
          @socket = nil
        end

        private

        def line(name, value, type, tags)
          line = text(name, value, type, tags)
          send_datagram if !@buffer.empty? && @buffer.bytesize + 1 + line.bytesize > DATAGRAM
          @buffer << "\n" unless @buffer.empty?
          @buffer << line
        end

        def text(name, value, type, tags)
          return "#{[name, *tags.each_value.map { |tag| part(tag) }].join(".")}:#{value}|#{type}" unless @dogstatsd

          all = @tags.merge(tags).map { |tag, content| "#{tag}:#{tag_value(content)}" }
          "#{name}:#{value}|#{type}#{"|##{all.join(",")}" unless all.empty?}"
        end

        # Without tags what they say is a part of the name.
        def part(tag) = EventFormatter.text(tag).gsub(/[^\w-]/, "_")

        def tag_value(content) = EventFormatter.text(content, 1_000).gsub(/[,|#[:cntrl:]]/, "_")

        def send_datagram
          return if @buffer.empty?

          handed_over? ? @sent += 1 : @dropped += 1
        rescue SystemCallError, SocketError => e
          @dropped += 1
          @error = e
          close
        ensure
          @buffer = +""
        end

        # ECONNREFUSED is about the previous datagram: a server may listen now.
        def handed_over?(tried: false)
          socket.sendmsg_nonblock(@buffer, exception: false) != :wait_writable
        rescue Errno::ECONNREFUSED
          !tried && handed_over?(tried: true)
        end

        def socket = @socket ||= Addrinfo.udp(@host, @port).connect
      end
    end
  end
end
