# frozen_string_literal: true

module Penstock
  # librdkafka's settings that bound the memory of fetched messages, computed from {ConsumerConfig#memory}.
  #
  # librdkafka stops fetching when its queue has `queued.min.messages` messages or `queued.max.messages.kbytes` of payloads. It
  # counts neither keys and headers nor its own memory for each message, which is larger than a small message. So most of the
  # budget is for that.
  #
  # A partition that finds the queue full is fetched again after `fetch.queue.backoff.ms`, by default after a second. A program
  # that empties the queue within a few ms would wait for the rest of that second. So it is 10 ms here; before 2.2.0, which has no
  # such setting, the consumer wakes librdkafka itself (refetch.c). And the queue is no longer than a quick program needs for that
  # time. Small messages that wait in a longer one have left the processor's caches when they are taken: 3.0 million messages/s
  # with 500,000 in the queue, 3.8 million with 65,536.
  #
  # What wakes librdkafka goes to the leaders. With `client.rack` it may fetch from other brokers, and before 2.2.0 nothing ends
  # that second. So the queue is long then, and the default budget larger: 480,000 small messages took 0.4 s instead of 2.1.
  # @api private
  module FetchLimits
    # What a queued message of 116 bytes takes beside its payload: 432 bytes with 2.0.2, 345 with 2.14.2.
    MEMORY_OF_A_MESSAGE = 432
    MESSAGES_SHARE = Rational(4, 5)
    PAYLOADS_SHARE = Rational(1, 4)
    # Answers that are on their way when the queue becomes full are added to it.
    ANSWER_SHARE = Rational(1, 16)
    DEFAULT = 256 << 20
    DEFAULT_UNWOKEN = 512 << 20
    MOST_MESSAGES = 65_536
    # librdkafka's upper limits.
    MOST_UNWOKEN = 10_000_000
    MOST_KILOBYTES = 2_097_151
    MOST_BYTES = 2_147_483_135
    # Bytes around an answer's messages, for which receive.message.max.bytes must have room.
    FRAME = 512
    BACKOFF_MS = 10
    private_constant(*constants(false))

    class << self
      # @param memory [Integer, nil] bytes
      # @param largest_message [Integer] message.max.bytes; librdkafka accepts no lower fetch.max.bytes
      # @param rack [String, nil] client.rack
      # @return [Hash{Symbol => Integer}] librdkafka's settings
      def settings(memory, largest_message, rack = nil)
        backoff = Settings.read("fetch.queue.backoff.ms", BACKOFF_MS) ? { "fetch.queue.backoff.ms": BACKOFF_MS } : {}
        unwoken = backoff.empty? && !rack.to_s.empty?
        memory ||= unwoken ? DEFAULT_UNWOKEN : DEFAULT
        most = unwoken ? MOST_UNWOKEN : MOST_MESSAGES
        { "queued.min.messages": (memory * MESSAGES_SHARE / MEMORY_OF_A_MESSAGE).to_i.clamp(1, most),
          "queued.max.messages.kbytes": (memory * PAYLOADS_SHARE / 1024).to_i.clamp(1, MOST_KILOBYTES),
          "fetch.max.bytes": fetch_bytes((memory * ANSWER_SHARE).to_i, nil, largest_message), **backoff }
      end

      # @param wanted [Integer] bytes
      # @param receive [Integer, nil] receive.message.max.bytes, if it is set
      # @return [Integer] fetch.max.bytes as librdkafka accepts it
      def fetch_bytes(wanted, receive, largest_message)
        wanted = [wanted, receive - FRAME].min if receive
        wanted.clamp(largest_message.clamp(1, MOST_BYTES), MOST_BYTES)
      end
    end
  end
end
