# frozen_string_literal: true

# Checks the message of every error that Penstock builds while tests run, in any Ractor: it must have the form that ErrorFactory
# describes. An error with another form is replaced by one that no test expects.
module ErrorFormat
  # Not an error of Penstock, so that no test rescues it.
  class Violation < Exception; end # rubocop:disable Lint/InheritException

  CONTEXT = /\[(?:producer|consumer|topic|partition|offset|brokers) [^\]]*\]/

  # @return [String, nil] what is wrong with a message
  def self.problem(message)
    return "it is not UTF-8" unless message.encoding == Encoding::UTF_8 && message.valid_encoding?
    return "it does not begin with a capital letter" unless message.match?(/\A\p{Lu}/)
    return "it does not end with a full stop" unless message.end_with?(".")
    return "the context is not at the end of a sentence" if message.gsub(/#{CONTEXT}\./o, "").match?(CONTEXT)

    "it has two contexts" if message.scan(CONTEXT).size > 1
  end

  # Prepended to ErrorFactory.
  module Check
    def build(...) = checked(super)
    def build_native(...) = checked(super)
    def build_many(...) = checked(super)

    private

    def checked(error)
      problem = ErrorFormat.problem(error.message)
      raise Violation, "#{error.class}: #{problem}: #{error.message}" if problem

      error
    end
  end

  Penstock.const_get(:ErrorFactory).singleton_class.prepend(Check)
end
