# frozen_string_literal: true

require_relative "config"
require_relative "instrumentation/event"
require_relative "instrumentation/subscription"
require_relative "instrumentation/monitor"
require_relative "instrumentation/exit_reports"
require_relative "instrumentation/tags"
require_relative "instrumentation/counter_snapshot"
require_relative "instrumentation/listeners"
require_relative "instrumentation/log_dispatcher"
require_relative "instrumentation/event_dispatcher"

# Events, and the threads that hand them to loggers and listeners.
module Penstock
  autoload :OpenTelemetry, "penstock/instrumentation/open_telemetry"
  private_constant :CounterSnapshot, :EventDispatcher, :ExitReports, :LogDispatcher, :Subscription
end
