# frozen_string_literal: true

module Penstock
  # The producers of this process, as {Producer::Internals}, which the rest of the library uses.
  module ProducerRegistry
    # It does not keep producers alive. ObjectSpace.each_object would find none after a second Ractor was started.
    @all = Native::WeakList.new # M:producers_listed_weakly

    # @return [Array<Producer::Internals>] the producers that are not garbage-collected
    def self.all
      @all.to_a # M:producers_listed
    end

    # @param internals [Producer::Internals]
    def self.remember(internals)
      @all.add(internals)
    end

    # @param producer [Producer]
    # @return [Producer::Internals]
    def self.of(producer) = producer.instance_variable_get(:@internals)

    # @param monitor [Monitor]
    # @return [Array<Producer::Internals>] the connected producers whose events reach the monitor
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
  private_constant :ProducerRegistry
end
