# frozen_string_literal: true

module Penstock
  # The consumers of this Ractor, as {Consumer::Internals}, which the rest of the library uses.
  module ConsumerRegistry
    KEY = :__penstock_consumers__
    private_constant :KEY

    # It does not keep consumers alive.
    # @return [Array<Consumer::Internals>]
    def self.all = list.to_a

    # @param internals [Consumer::Internals]
    def self.remember(internals) = list.add(internals)

    # @param consumer [Consumer]
    # @return [Consumer::Internals]
    def self.of(consumer) = consumer.instance_variable_get(:@internals)

    # @param monitor [Monitor]
    # @return [Array<Consumer>] the open consumers whose events reach the monitor
    def self.connected_to(monitor)
      all.select { |one| one.notifier.heard_by?(monitor) && one.status.connected? }.map(&:consumer)
    end

    def self.list = Ractor.current[KEY] ||= Native::WeakList.new
    private_class_method :list
    list # not by two threads at once
  end
  private_constant :ConsumerRegistry
end
