# frozen_string_literal: true

module Penstock
  # Listeners that send what they have when the process ends.
  module ExitReports
    @reporting = {}.compare_by_identity # listener => process

    class << self
      # @param listener [#flush]
      def add(listener) = @reporting[listener] = Process.pid

      # @param listener [#flush]
      def delete(listener) = @reporting.delete(listener)

      # When all producers are closed, and the process ends.
      def finish = @reporting.select { |_, pid| pid == Process.pid }.each_key(&:flush)
    end
  end
end
