# frozen_string_literal: true

module Penstock
  # Group: a setting is wrong. Nothing was made or connected.
  class ConfigurationError < Error; end

  # A setting is unknown, has a wrong value or contradicts another. Nothing was made or connected.
  class ConfigurationInvalidError < ConfigurationError; end

  # A setting of {Producer#with} is unknown, has a wrong value, or contradicts the producer's; or there are too many
  # variants. Nothing was made.
  class VariantInvalidError < ConfigurationError; end
end
