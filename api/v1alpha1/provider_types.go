package v1alpha1

// Dialect is the wire format of a provider's API.
// +kubebuilder:validation:Enum=OpenAIChat;AnthropicMessages
type Dialect string

const (
	// DialectOpenAIChat is the OpenAI Chat Completions API; requests go to baseURL + /chat/completions.
	DialectOpenAIChat Dialect = "OpenAIChat"
	// DialectAnthropicMessages is the Anthropic Messages API; requests go to baseURL + /v1/messages.
	DialectAnthropicMessages Dialect = "AnthropicMessages"
)

// Insecure says where a provider may be reached over plain http.
// +kubebuilder:validation:Enum=Forbid;Loopback;Cluster
type Insecure string

const (
	// InsecureForbid allows https only.
	InsecureForbid Insecure = "Forbid"
	// InsecureLoopback allows http to loopback addresses as well.
	InsecureLoopback Insecure = "Loopback"
	// InsecureCluster allows http to loopback addresses and to the names of Services of the cluster.
	InsecureCluster Insecure = "Cluster"
)

// Provider is one API endpoint with its dialect and credential.
//
// +kubebuilder:validation:XValidation:rule="!self.baseURL.startsWith('http://') || (has(self.insecure) && self.insecure != 'Forbid')",message="baseURL: plain http needs insecure: Loopback or Cluster",fieldPath=".baseURL"
// +kubebuilder:validation:XValidation:rule="!self.baseURL.startsWith('http://') || !has(self.insecure) || self.insecure == 'Forbid' || self.baseURL.matches('^http://(localhost|127[.][0-9.]+|[[]::1[]])(:[0-9]+)?(/.*)?$') || (self.insecure == 'Cluster' && self.baseURL.matches('^http://[a-z0-9-]+([.][a-z0-9-]+[.]svc([.][a-z0-9.-]+)?)?(:[0-9]+)?(/.*)?$'))",message="baseURL: insecure: Loopback allows plain http to localhost, 127.0.0.0/8 and ::1 only, Cluster to names of Services (name or name.namespace.svc) as well",fieldPath=".baseURL"
// +kubebuilder:validation:XValidation:rule="self.dialect != 'AnthropicMessages' || !self.baseURL.endsWith('/v1')",message="baseURL: requests of dialect AnthropicMessages go to baseURL + /v1/messages; remove the /v1 at its end",fieldPath=".baseURL"
type Provider struct {
	// name is what legs refer to.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name,omitempty"`

	// dialect is the wire format.
	// +required
	Dialect Dialect `json:"dialect,omitempty"`

	// baseURL ends where the dialect's own path begins: https://host/v1 for OpenAIChat, https://host for AnthropicMessages.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="isURL(self) && self.matches('^https?://[^/?#@]+(/[^?#]*)?$') && !self.endsWith('/')",message="baseURL must be an http or https URL with a host and without user, query, fragment or a slash at its end"
	BaseURL string `json:"baseURL,omitempty"`

	// credential is sent to the provider's host only. Unset for servers that ask for none.
	// +optional
	Credential *Credential `json:"credential,omitempty"`

	// headers are sent with every request.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	Headers []Header `json:"headers,omitempty"`

	// caBundle are certificates to trust besides the system's, as PEM text.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=65536
	// +kubebuilder:validation:XValidation:rule="self.contains('-----BEGIN CERTIFICATE-----')",message="caBundle must be PEM text (-----BEGIN CERTIFICATE-----), not base64"
	CABundle string `json:"caBundle,omitempty"`

	// insecure says where baseURL may be plain http. Defaults to Forbid.
	// +optional
	Insecure Insecure `json:"insecure,omitempty"`
}

// Credential names the secret value that authenticates requests.
type Credential struct {
	// secretRef is a key of a Secret in the ladder's namespace.
	// +required
	SecretRef SecretKeyReference `json:"secretRef,omitzero"`
}

// SecretKeyReference is a key of a Secret.
type SecretKeyReference struct {
	// name is the name of the Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	Name string `json:"name,omitempty"`

	// key is the key in the Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[-._a-zA-Z0-9]+$`
	Key string `json:"key,omitempty"`
}

// Header is one HTTP header.
type Header struct {
	// name is the header's name. Authorization, Host, Content-* and the headers that frame a message are not allowed: they
	// belong to the request, not to the provider.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^[-!#$%&'*+.^_|~0-9A-Za-z]+$`
	// +kubebuilder:validation:XValidation:rule="!self.lowerAscii().matches('^(authorization|proxy-authorization|host|content-.*|transfer-encoding|connection)$')",message="name: Authorization, Proxy-Authorization, Host, Content-*, Transfer-Encoding and Connection cannot be set"
	Name string `json:"name,omitempty"`

	// value is the header's value. It is stored in the ladder in plain text: no secret belongs here.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^[\x20-\x7e]+$`
	Value string `json:"value,omitempty"`
}
