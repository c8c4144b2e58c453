# frozen_string_literal: true

module Penstock
  # Ready listeners, for `producer.monitor.subscribe` and `Penstock.monitor.subscribe`. Loaded when they are first named.
  module Listeners
    autoload :ActiveSupportNotifications, "penstock/instrumentation/listeners/active_support_notifications"
    autoload :AppNumbers, "penstock/instrumentation/listeners/app_numbers"
    autoload :EventFormatter, "penstock/instrumentation/listeners/event_formatter"
    autoload :Logger, "penstock/instrumentation/listeners/logger"
    autoload :MetricsLedger, "penstock/instrumentation/listeners/metrics_ledger"
    autoload :MetricsListener, "penstock/instrumentation/listeners/metrics_listener"
    autoload :Prometheus, "penstock/instrumentation/listeners/prometheus"
    autoload :Statsd, "penstock/instrumentation/listeners/statsd"
    private_constant :AppNumbers, :MetricsLedger, :MetricsListener, :EventFormatter
  end
end
