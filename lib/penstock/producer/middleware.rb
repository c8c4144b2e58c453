# frozen_string_literal: true

module Penstock
  # Steps that each message passes, in order, before it is checked and sent.
  #
  #     middleware.append { |message| message.merge(headers: { "source" => "billing" }) }
  #     middleware.prepend(Tracing.new) # any object with call(message)
  #
  # A step gets the message Hash and returns a message Hash: the same one, changed or not, or another. It gets a copy of the
  # caller's Hash and of its `headers` Hash, so that a step may change both. The values in them, such as the payload String,
  # belong to the caller and must not be changed. If a step raises, the sending call raises its error, and nothing is sent,
  # also of a batch.
  #
  # Any thread and fiber may use it, and add steps while others produce: a call uses the steps that existed when it began.
  # Without steps there is no cost. Never blocks, apart from the steps themselves.
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
    # @raise [ArgumentError] when the step is not callable, or when both or neither of step and block are given
    def append(step = nil, &block)
      step = callable(step, block)
      change { |steps| [*steps, step] }
    end

    # Adds a step before the others; otherwise like {#append}.
    # @param step [#call, nil] or a block
    # @return [self]
    # @raise [ArgumentError] when the step is not callable, or when both or neither of step and block are given
    def prepend(step = nil, &block)
      step = callable(step, block)
      change { |steps| [step, *steps] }
    end

    # @param message [Hash] left unchanged
    # @return [Hash] what the last step returned; the message itself when there are no steps
    # @raise [MessageInvalidError] when a step did not return a Hash; the error names the step
    def run(message)
      steps = @steps
      return message if steps.empty? || !message.is_a?(Hash) # produce raises for an object that is no Hash

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
    # @raise [MessageInvalidError] when a step did not return a Hash; the error names the step and the message
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

      raise ArgumentError, "a middleware step must respond to call(message), unlike #{step.inspect}"
    end

    def change
      first = @steps.empty?
      @lock.synchronize { @steps = yield(@steps).freeze }
      tell_producers if first # M:middleware_refreshes_handles
      self
    end

    # Handles in other Ractors must not produce any more, also those of disconnected producers, which would connect again.
    def tell_producers
      all = ProducerRegistry.all # M:middleware_finds_disconnected
      all.each { |known| known.ractor_handles.refresh if known.middleware.equal?(self) }
    end

    def copy(message) = { **message, headers: message[:headers].dup }

    def raise_one_of(step, results)
      index = results.index { |result| !result.is_a?(Hash) }
      raise_invalid(step, results[index], "message #{index} of the batch: ")
    end

    def raise_invalid(step, result, where = "")
      text = "the middleware step #{Text.name_of(step)} returned #{result.class} instead of a message Hash"
      raise ErrorFactory.build(MessageInvalidError, "#{where}#{text}")
    end
  end
end
