# frozen_string_literal: true

module Penstock
  # Ready listeners, for `producer.monitor.subscribe` and `Penstock.monitor.subscribe`. Loaded when they are first named.
  module Listeners
    autoload :Logger, "penstock/listeners/logger"
    autoload :Statsd, "penstock/listeners/statsd"
    autoload :Prometheus, "penstock/listeners/prometheus"
    autoload :Books, "penstock/listeners/books"
    autoload :Measuring, "penstock/listeners/measuring"
    autoload :Words, "penstock/listeners/words"
    private_constant :Books, :Measuring, :Words

    @reporting = {}.compare_by_identity # listener => process

    class << self
      # Has the listener send what it has when the process ends.
      # @api private
      def reporting(listener) = @reporting[listener] = Process.pid

      # @api private
      def reported(listener) = @reporting.delete(listener)

      # When all producers are closed, and the process ends.
      # @api private
      def finish = @reporting.select { |_, pid| pid == Process.pid }.each_key(&:flush)
    end
  end
end
