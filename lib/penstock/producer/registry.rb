# frozen_string_literal: true

module Penstock
  # The producers of this process, by their {Producer::Internals}, which the rest of the library needs of them.
  module ProducerRegistry
    # All there are, kept alive by others only. Once there has been a second Ractor, ObjectSpace.each_object shows none.
    @all = ObjectSpace::WeakMap.new

    # (WeakMap#keys of Ruby 3.1 looks whether the value lives, and not the key.)
    # @return [Array<Producer::Internals>] those that the process still has
    def self.all = @all.values

    # Itself as the value: with true, Ruby 3.1 shows what is gone, and crashes.
    def self.remember(internals) = @all[internals] = internals

    # @param producer [Producer]
    # @return [Producer::Internals]
    def self.of(producer) = producer.instance_variable_get(:@internals)

    # @param monitor [Monitor]
    # @return [Array<Producer::Internals>] those that are connected and whose events the monitor hears
    def self.connected_to(monitor)
      all.select do |internals|
        internals.status.connected? && internals.monitor.respond_to?(:heard_by?) && internals.monitor.heard_by?(monitor)
      end
    end

    # Called by exit.c at the end of the process. A logger that does not return delays the end by at most a second.
    def self.log_unsent
      unsent = all.map(&:buffer).select(&:left?)
      Thread.new { unsent.each(&:log_unsent) }.join(1) if unsent.any?
    end
  end
end
