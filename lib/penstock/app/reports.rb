# frozen_string_literal: true

module Penstock
  class App
    # The part of {Loop} that tells what it does, on any thread.
    # @api private
    module Reports
      BACKTRACE = 5 # lines
      # Seconds. When so much more time is over, the loop itself hangs.
      LATE = 2.5
      # So long listeners may take after the end, also when the time is up.
      LEAST = 0.5
      private_constant :BACKTRACE

      # @return [String]
      def status
        running = blockers
        ["#{watch.health}; #{Text.count(running.size, "call")} of processors in work", *running].join("\n")
      end

      # @return [Array<StopReport::Blocker>] what the workers do
      def blockers = @executor.running.map { |work, thread| blocker(work, thread) }

      def event(name) = @monitor.listening?(name) && @publisher.publish(Event.new(name, yield))

      # For the consumers.
      # @return [Monitor]
      def relay = @publisher.relay

      def log(level, text) = @publisher.log(level, text)

      def error(type, error, **about)
        heard = @monitor.listening?("error.occurred")
        @publisher.publish(Event.new("error.occurred", { type:, error:, caller: self, **about })) if heard
        return if heard && @settings.logger.nil?

        log(:error, "#{[type, *about.map { |pair| pair.join("=") }].join(" ")}: #{Text.describe(error)}")
      end

      private

      # Of the loop's thread. The first error is the one that has ended the application.
      def ended_by(cause)
        return if @error

        @error = cause
        error("app.fatal_error", cause)
      end

      # Of a program's thread.
      def late_report
        here = StopReport::Blocker.new(processor: "the application's own thread", seconds: LATE,
                                       backtrace: (@thread.backtrace || []).first(BACKTRACE))
        StopReport.new([here, *blockers], @error, @settings.groups.map(&:id))
      end

      # Everything has ended but a listener.
      def unheard_report
        processor, seconds, backtrace = @publisher.busy_with
        return @report unless processor

        listener = StopReport::Blocker.new(processor:, seconds:, backtrace: backtrace.first(BACKTRACE))
        StopReport.new([*@report.blockers, listener], @report.error, @report.groups)
      end

      def blocker(work, thread)
        partition = work.partition
        StopReport::Blocker.new(group: partition.subscription.group.id, topic: partition.topic, partition: partition.number,
                                offset: work.offset, processor: partition.route.processor_name,
                                seconds: work.started ? @clock.call - work.started : 0.0,
                                backtrace: (thread&.backtrace || []).first(BACKTRACE))
      end
    end
    private_constant :Reports
  end
end
