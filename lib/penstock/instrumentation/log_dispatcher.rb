# frozen_string_literal: true

module Penstock
  # The Ruby thread that calls the loggers of users. It starts when a producer that has a logger connects, and ends with the
  # last of them.
  #
  # No other thread waits for it: a logger that is slow or raises delays only later log lines. When 10,000 lines are
  # waiting, further lines are dropped and counted.
  # @api private
  module LogDispatcher
    # syslog's levels, which librdkafka uses, to Logger's severities
    SEVERITIES = [4, 4, 4, 3, 2, 1, 1, 0].freeze

    @lock = Mutex.new
    @loggers = {} # by the address of a producer's log mailbox
    @thread = nil
    @pid = nil

    class << self
      def attach(address, logger)
        @lock.synchronize do
          forget_parent unless @pid == Process.pid
          @loggers[address] = logger
          @thread = start unless @thread&.alive?
        end
      end

      # Waits until all log lines of closed producers are logged. For the end of the process.
      # @param timeout [Numeric] seconds
      def finish(timeout)
        thread = @thread
        thread.join(timeout) if thread && @pid == Process.pid && thread != Thread.current
      end

      private

      def forget_parent
        @loggers = {}
        @thread = nil
        @pid = Process.pid
      end

      def start = Threads.start("penstock.dispatcher") { run }

      def run
        loop do
          address, level, text = next_mail
          if level
            log(address, level, text)
          elsif last?(address)
            break
          end
        end
      ensure
        replace
      end

      # A logger may have ended the thread while there are other loggers to call.
      def replace
        @lock.synchronize { @thread = start if @thread == Thread.current }
      rescue ThreadError
        @thread = nil # the process is ending
      end

      def last?(address)
        @lock.synchronize do
          @loggers.delete(address)
          @loggers.empty? && (@thread = nil).nil?
        end
      end

      def log(address, level, text)
        logger = @loggers[address] or return
        dropped = dropped_mail
        logger.add(2, "#{dropped} log lines were dropped: the logger is too slow", "penstock") if dropped.positive?
        logger.add(SEVERITIES.fetch(level, 1), text, "penstock")
      rescue Exception => e # rubocop:disable Lint/RescueException -- the thread calls other loggers too
        warn "penstock: the logger raised #{Text.describe(e)}" # M:text_logger_error
      end
    end
  end
end
