# frozen_string_literal: true

module Penstock
  # One subscription to a {Monitor}. `name` is the method to call; nil: the target is a block.
  # @api private
  Subscription = Struct.new(:target, :name) do
    def notify(event) = name ? target.public_send(name, event) : target.call(event)

    def same?(other) = target.equal?(other.target)

    # @return [String] its name: a class, or the place of a block
    def to_s
      return target.is_a?(Module) ? target.name.to_s : target.class.name.to_s if name

      target.source_location ? target.source_location.join(":") : target.inspect
    end

    # Publishes the error of a listener, once. A listener of errors that itself raises does not get its own error.
    # @param error [Exception]
    # @param event [Event]
    # @param others [Array<Subscription>] the listeners of "error.occurred"
    def failed(error, event, others)
      others = others.reject { |other| other.same?(self) } if event.id == "error.occurred"
      return print_error(error, event) if others.empty?

      news = Event.new("error.occurred", { type: Subscription::FAILURES.fetch(event.id, "listener.error"), error:,
                                           event: event.id, **event.__send__(:owner) })
      others.each do |other|
        other.notify(news)
      rescue StandardError, ScriptError, SystemStackError => e
        print_error(e, news)
      end
    end

    private

    def print_error(error, event)
      news = event.__send__(:error)
      news &&= " when it handled #{Text.describe(news)}"
      warn "penstock: a listener of #{event.id} raised #{Text.describe(error)} (#{error.backtrace&.first})#{news}"
    rescue IOError, SystemCallError
      nil # stderr is closed
    end
  end

  # The type of "error.occurred" for a listener that raised, by the event it handled.
  Subscription::FAILURES = { "message.acknowledged" => "callbacks.delivery.error",
                             "statistics.emitted" => "callbacks.statistics.error",
                             "oauthbearer.token_refresh" => "callbacks.oauthbearer_token_refresh.error",
                             "error.occurred" => "callbacks.error.error" }.freeze
end
