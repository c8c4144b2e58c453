# frozen_string_literal: true

module Penstock
  class App
    # Makes the processors of a route.
    # @api private
    class Maker
      # @param routes [Array<Route>]
      # @return [Array<Route>] whose processors want to know when the end of a partition is reached
      def self.with_ends(routes) = routes.select { |route| new(route).ends? }

      # @param route [Route]
      def initialize(route)
        @route = route
      end

      # Raises if none can be made. A class given by its name is looked up when it is needed.
      # @raise [ConfigurationInvalidError]
      def check
        given = @route.processor
        check_class(given) if given.is_a?(Class)
        return if given.is_a?(Class) || given.is_a?(String) || given.respond_to?(:call)

        invalid("the option to: must be a class of processors, its name or an object with `call`, not #{given.inspect}")
      end

      # When the application starts, a class given by its name must exist.
      # @raise [ConfigurationInvalidError] when there is no such class, or it has no method that fits
      def check_name
        made = found
        check_class(made) if made.is_a?(Class)
      end

      # @return [Boolean]
      def ends? = found.then { |made| made.is_a?(Class) && made.method_defined?(:caught_up) }

      # @return [Processor]
      # @raise [ConfigurationInvalidError] when there is no such class, or it has no method that fits
      def make
        made = found
        return CallProcessor.new(made) unless made.is_a?(Class)

        check_class(made)
        made.new
      end

      private

      def found
        given = @route.processor
        given.is_a?(String) ? Object.const_get(given) : given
      rescue NameError => e
        raise unless e.name && given.include?(e.name.to_s)

        invalid("the processor #{given.inspect} does not exist")
      end

      def check_class(made)
        invalid("the option to: must be a subclass of Penstock::Processor, not #{made}") unless made <= Processor
        methods = %i[process process_batch].select { |name| made.method_defined?(name) }
        invalid("#{made} has both process and process_batch") if methods.size == 2
        wanted = @route.batch? ? :process_batch : :process
        return if methods == [wanted]

        reason = ", as the route has :batch" if @route.batch?
        hint = methods.empty? ? "" : " (it has #{methods.first})"
        invalid("#{made} needs a method #{wanted}#{reason}#{hint}")
      end

      def invalid(text) = raise(ErrorFactory.build(ConfigurationInvalidError, text, topic: @route.topic.to_s))
    end
    private_constant :Maker
  end
end
