# frozen_string_literal: true

module Penstock
  # The consumers of this Ractor, as {Consumer::Notifier}s: a change of the listeners concerns them.
  module ConsumerRegistry
    KEY = :__penstock_consumers__
    private_constant :KEY

    # It does not keep consumers alive. See {ProducerRegistry} for the WeakMap's values.
    # @return [Array<Consumer::Notifier>]
    def self.all = map.values

    # @param notifier [Consumer::Notifier]
    def self.remember(notifier) = map[notifier] = notifier

    # @param monitor [Monitor]
    # @return [Array<Consumer>] the open consumers whose events reach the monitor
    def self.connected_to(monitor)
      all.select { |notifier| notifier.heard_by?(monitor) }.map(&:consumer).select { |consumer| consumer.status.connected? }
    end

    def self.map = Ractor.current[KEY] ||= ObjectSpace::WeakMap.new
    private_class_method :map
    map # not by two threads at once
  end
  private_constant :ConsumerRegistry
end
