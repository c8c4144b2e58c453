# frozen_string_literal: true

module Penstock # rubocop:disable Style/Documentation -- in lib/penstock.rb
  # Makes every wait of the producers and consumers end by a deadline: closes in this many seconds those that are still open.
  # Until then they work as before, so the program can finish and close them itself. For signal traps and at_exit blocks, where
  # the program cannot end the waits of its threads.
  #
  #     trap("TERM") do
  #       stopping = true
  #       Penstock.close_within(20)
  #     end
  #
  # Then each client closes as with `close(timeout: 0)`: calls that wait end, as docs/waiting.md describes, and later ones raise
  # {ProducerClosedError} or {ConsumerClosedError}. Messages that are still in flight are purged, and the buffer is not sent.
  #
  # It may be called several times; the shortest time counts. It concerns the producers of the process, and the consumers of the
  # Ractor that calls it. It does not concern fork children, and {Admin} clients, whose calls all have a timeout.
  #
  # Blocks: never. Any thread and signal trap may call it.
  # @param seconds [Numeric]
  # @return [nil]
  # @raise [ArgumentError] when the time is invalid
  def self.close_within(seconds)
    raise ArgumentError, "expected a number of seconds, not nil" if seconds.nil?

    seconds = Seconds.of(seconds)
    Threads.start("penstock.closing") do
      sleep(seconds)
      clients = [*ConsumerRegistry.all.map(&:consumer), *ProducerRegistry.all.map(&:producer)]
      clients.each { |client| Threads.start("penstock.closing") { client.close(timeout: 0) } }
    end
    nil
  end
end
