# frozen_string_literal: true

module Penstock
  # Steps that each message passes, in order, before it is checked and sent.
  #
  #     middleware.append { |message| message.merge(headers: { "source" => "billing" }) }
  #     middleware.prepend(Tracing.new) # anything with call(message)
  #
  # A step gets the message Hash and returns it, changed or not, or another one. What it gets is a copy of the caller's
  # Hash and of its `headers` Hash, so that a step may change either without the caller seeing it; the values in them,
  # such as the payload String, are the caller's own and must not be changed. What a step raises goes to whoever
  # produces the message, and nothing is sent, of a batch neither.
  #
  # Any thread and fiber may use it, and add steps while others produce: a call uses the steps there were when it began.
  # Without steps it costs nothing. Never blocks, apart from what the steps do.
  class Middleware
    extend RequiresSuper
    include AsJson

    def initialize
      @lock = Mutex.new
      @steps = [].freeze # replaced as a whole, so that reading needs no lock
    end

    # Adds a step after the others.
    # @param step [#call, nil] or a block
    # @yieldparam message [Hash]
    # @yieldreturn [Hash] the message to go on with
    # @return [self]
    # @raise [ArgumentError] it is not callable, or both or none were given
    def append(step = nil, &block)
      step = callable(step, block)
      change { |steps| [*steps, step] }
    end

    # Adds a step before the others; otherwise like {#append}.
    # @param step [#call, nil] or a block
    # @return [self]
    # @raise [ArgumentError] it is not callable, or both or none were given
    def prepend(step = nil, &block)
      step = callable(step, block)
      change { |steps| [step, *steps] }
    end

    # @param message [Hash] left unchanged
    # @return [Hash] what the last step returned; the message itself when there are no steps
    # @raise [MessageInvalidError] a step returned something that is no Hash; the error names the step
    def run(message)
      steps = @steps
      return message if steps.empty? || !message.is_a?(Hash) # what is none is refused when it is produced

      message = message[:headers].is_a?(Hash) ? copy(message) : Hash[message]
      place = 0
      while (step = steps[place]) # no block: for a short step, it would cost more than the step
        message = step.call(message)
        raise_invalid(step, message) unless message.is_a?(Hash)
        place += 1
      end
      message
    end

    # Each step gets all messages before the next one does.
    # @param messages [Array<Hash>] left unchanged
    # @return [Array<Hash>] what the last step returned for each; the Array itself when there are no steps
    # @raise [MessageInvalidError] a step returned something that is no Hash; the error names the step and the message
    def run_many(messages)
      steps = @steps
      return messages if steps.empty? || !messages.is_a?(Array) || !messages.all?(Hash) # as above

      messages = messages.map { |message| message[:headers].is_a?(Hash) ? copy(message) : Hash[message] }
      steps.each do |step|
        messages.map! { |message| step.call(message) }
        raise_one_of(step, messages) unless messages.all?(Hash)
      end
      messages
    end

    # @return [Boolean] whether there are no steps
    def empty? = @steps.empty?

    # @return [Array<#call>] the steps in order; a copy
    def to_a = @steps.dup

    # @return [String]
    def inspect = "#<#{self.class} #{@steps.map { |step| Text.name_of(step) }.join(", ")}>"

    private

    # @see RequiresSuper
    def initialized? = !@steps.nil?

    def callable(step, block)
      raise ArgumentError, "give a step or a block, not both" if step && block

      step ||= block
      return step if step.respond_to?(:call)

      raise ArgumentError, "a middleware step has to respond to call(message), which #{step.inspect} does not"
    end

    def change
      first = @steps.empty?
      @lock.synchronize { @steps = yield(@steps).freeze }
      tell_producers if first
      self
    end

    # Other Ractors produce without it, until now; and those that are disconnected would when they connect again.
    def tell_producers = ProducerRegistry.all.each { |one| one.ractor_handles.refresh if one.middleware.equal?(self) }

    def copy(message) = { **message, headers: message[:headers].dup }

    def raise_one_of(step, results)
      index = results.index { |result| !result.is_a?(Hash) }
      raise_invalid(step, results[index], "message #{index} of the batch: ")
    end

    def raise_invalid(step, result, where = "")
      text = "the middleware step #{Text.name_of(step)} returned no message Hash, but #{result.class}"
      raise ErrorFactory.build(MessageInvalidError, "#{where}#{text}")
    end
  end
end
