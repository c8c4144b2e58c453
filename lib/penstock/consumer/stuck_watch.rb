# frozen_string_literal: true

module Penstock
  # Looks for partitions from which nothing comes although they have messages ({ConsumerConfig#stuck_after}). It asks brokers, and
  # the thread that polls must not wait for that: it is a task of a {SharedThread}, which all consumers of a Ractor share.
  # librdkafka has had defects of this kind (its issues 2933 and 3437, for example).
  #
  # It refers to the consumer only weakly, so that a consumer without references is closed.
  # @api private
  class StuckWatch
    include AsJson

    CHECKS = 4 # in the time after which a partition is stuck
    LONGEST_PAUSE = 2 # seconds
    TIMEOUT = 5 # seconds for an answer of the brokers
    PATIENCE = 1 # second: an idle partition's leader may answer late (`fetch.wait.max.ms`), and so may the GVL come
    MOST = 4 # tasks at once, each on a thread
    KEY = :__penstock_stuck__
    private_constant :CHECKS, :LONGEST_PAUSE, :TIMEOUT, :PATIENCE, :MOST, :KEY

    # The modules of the main Ractor are out of reach of others.
    def self.thread = Ractor.current[KEY] ||= SharedThread.new("penstock.stuck", PATIENCE, most: MOST)
    thread # not by two threads at once

    # @param parts [Consumer::Internals]
    def initialize(parts)
      @parts = Native::WeakList.new.add(parts)
      @after = parts.config.stuck_after / 1000.0
      @restart = parts.config.restart_stuck
      @seen = {} # position, since when it has had messages, and #waits?'s number of messages, by topic and partition
      @thread = self.class.thread
      @check_at = nil
      @stopped = false
    end

    # Called when partitions may be assigned.
    def start
      @check_at ||= next_check
      @thread.add(self, self)
    end

    # Called when the consumer closes, perhaps in a signal trap.
    def stop
      @stopped = true
      SharedThread.changed
    end

    # @return [Float, nil] see {SharedThread}
    def due_at = @stopped || @parts.empty? ? nil : @check_at

    # The task of the {SharedThread}.
    def call
      parts = @parts.to_a.first
      check(parts) if parts && !@stopped
    rescue ConsumerClosedError, ForkedError
      @stopped = true # the consumer is gone
    ensure
      @check_at = next_check
    end

    private

    def next_check = now + [@after / CHECKS, LONGEST_PAUSE].min

    def check(parts)
      silent = silent_partitions(parts)
      return if silent.empty?

      lag = parts.offsets.lag(silent, false, TIMEOUT)
      silent.each { |topic, partitions| partitions.each { |partition| judge(parts, topic, partition, lag[topic][partition]) } }
    rescue ConsumerClosedError, ForkedError
      raise
    rescue ConsumeError, ConnectionError, ConfigurationInvalidError
      nil # the brokers do not answer: other events say so, and the next check asks again
    rescue StandardError => e # a defect of Penstock; the next check may work
      parts.notifier.error("consumer.stuck_after", e)
    end

    # @return [Hash{String => Array<Integer>}] what is assigned and not paused, and has not moved since the last check
    def silent_partitions(parts)
      paused = parts.positions.paused
      positions = parts.subscription.assignment.flat_map do |topic, partitions|
        (partitions - paused.fetch(topic, [])).map do |partition|
          [[topic, partition], parts.positions.position(topic, partition)]
        end
      end.to_h
      before = @seen
      @seen = positions.to_h { |place, position| [place, same(before[place], position) || [position, nil, nil]] }
      silent = @seen.select { |place, seen| seen.equal?(before[place]) }.keys
      silent.group_by(&:first).transform_values { |places| places.map(&:last) }
    end

    # @return [Array, nil] what was seen, if the position is still the same
    def same(seen, position) = seen && seen.first == position ? seen : nil

    def judge(parts, topic, partition, lag)
      seen = @seen[[topic, partition]]
      return seen[1] = nil if lag.nil? || lag.zero? || waits?(parts.metrics, seen)
      return if now - (seen[1] ||= now) < @after # an idle partition may just have got a message, which is on its way

      position, since, = @seen.delete([topic, partition])
      return if parts.positions.position(topic, partition) != position # it has moved while the brokers were asked

      restarted = @restart && restart(parts, topic, partition, position)
      parts.notifier.instrument("partition.stuck") do
        { topic:, partition:, position:, lag:, restarted: restarted || false, time: (now - since) * 1000.0 }
      end
    end

    # Fetched messages that the program has not polled may be of this partition.
    def waits?(metrics, seen)
      return false if metrics.queue_length.zero?

      seen[2] ||= metrics.messages + metrics.queue_length
      metrics.messages < seen[2]
    end

    # A seek makes librdkafka fetch anew. It can only be sought if it was begun.
    def restart(parts, topic, partition, position)
      return parts.client.restart([[topic, partition, ConsumerPlaces::INVALID_OFFSET]]).any? unless position

      parts.positions.seek({ topic => { partition => position } }, false, TIMEOUT)
      true
    rescue ConsumeError
      false
    end

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
  private_constant :StuckWatch
end
