# frozen_string_literal: true

module Penstock
  # The native thread that serves producers: it takes librdkafka's events and resolves delivery handles, without
  # the GVL and without running Ruby. One, {Poller.instance}, is enough for any number of producers. A dedicated
  # poller (`config.polling.poller = Penstock::Poller.new`) isolates a producer from the load of others.
  #
  # The thread starts when the first producer connects and stops when the last one closes. It can start again.
  # A fork child has a thread of its own.
  class Poller
    include Uncopyable
    include AsJson

    # @!method id
    #   @return [Integer] counts the pollers of the process from 0
    # @!method stats
    #   Counters of the poller; never blocks for long.
    #   @return [Hash{Symbol=>Integer, Float, nil}]
    #     `clients` served now; `wakeups` of the thread; `drains` of a client's queue; `events` and `messages` taken, by it or
    #     by a waiting thread of the program;
    #     `slices_cut`: drains that ended with `max_time` instead of an empty queue; `sweeps` over all clients;
    #     `missed_wakeups`: work that only a sweep found, always 0 or a defect; `starts` of the thread; and while it
    #     runs its `thread_id` and `cpu_seconds`.

    # @return [Poller] the default poller of producers
    def self.instance = DEFAULT

    # The name of the native thread. Linux shows its first 15 characters.
    # @return [String]
    def name = "penstock.poller##{id}"

    # @return [Integer] how many producers it serves
    def count = stats[:clients]

    # @return [Boolean] whether its thread runs
    def alive? = !stats[:thread_id].nil?

    # @return [String] its name and how many clients it serves
    def inspect = "#<#{self.class} #{name} clients=#{count}>"

    # (see AsJson#as_json)
    def as_json(_options = nil) = json(name:, clients: count)
  end
end
