# frozen_string_literal: true

module Penstock
  module Settings
    # Names that librdkafka calls an alias in the table that it prints, and what each is an alias for.
    ALIASES = Ractor.make_shareable(
      Native::ProducerClient.setting_lines.filter_map do |line|
        line.match(/\A(\S+) .*\bAlias for `([^`]+)`/)&.captures&.map(&:to_sym)
      end.to_h
    )
  end
end
