# frozen_string_literal: true

module Penstock
  class App # rubocop:disable Style/Documentation -- in app.rb
    # How many messages may be handed out: so many in a time, which may all come at its beginning. Of the loop's thread.
    # @api private
    class Bucket
      # @param messages [Integer]
      # @param per [Numeric] seconds
      # @param runtime [Runtime]
      def initialize(messages, per, runtime)
        @most = messages
        @rate = messages / per.to_f
        @runtime = runtime
        @left = messages.to_f
        @at = runtime.now
      end

      # @return [Integer] messages that may be handed out now
      def allowed
        now = @runtime.now
        @left = [@left + ((now - @at) * @rate), @most].min
        @at = now
        [@left.floor, 0].max
      end

      # @param count [Integer] so many messages are handed out: with a batch perhaps more than allowed, for which later ones wait.
      #   Negative: they were not begun
      def take(count) = @left -= count

      # @return [Float] seconds until one is allowed
      def wait = [(1 - @left) / @rate, 0.001].max
    end

    # The {Bucket}s of a partition, all of which must allow a message. Some are of other partitions, too.
    # @api private
    class Throttle
      # @param buckets [Array<Bucket>]
      def initialize(buckets)
        @buckets = buckets
      end

      # @see Bucket#allowed
      def allowed = @buckets.map(&:allowed).min

      # @see Bucket#take
      def take(count) = @buckets.each { |bucket| bucket.take(count) }

      # @see Bucket#wait
      def wait = @buckets.map(&:wait).max
    end

    # All {Bucket}s that partitions share.
    # @api private
    class Throttles
      # @param runtime [Runtime]
      def initialize(runtime)
        @runtime = runtime
        @shared = {}
      end

      # @param route [Route]
      # @param topic [String]
      # @return [Throttle, nil] of a partition; nil: there is no limit
      def of(route, topic)
        list = route.options[:throttle] or return
        list = [list] if list.is_a?(Hash)
        Throttle.new(list.map { |options| bucket(options, route, topic) })
      end

      private

      def bucket(options, route, topic)
        case options[:over]
        when :process then @shared[[route, options]] ||= made(options)
        when :topic then @shared[[route, options, topic]] ||= made(options)
        else made(options)
        end
      end

      def made(options) = Bucket.new(*options.values_at(:messages, :per), @runtime)
    end
    private_constant :Bucket, :Throttle, :Throttles
  end
end
