package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the API group of Belay.
const GroupName = "agents.belay.dev"

var (
	// SchemeGroupVersion is the group and version of the types of this package.
	SchemeGroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1alpha1"}

	// GroupVersion is SchemeGroupVersion, by the name that kubebuilder's tools expect.
	GroupVersion = SchemeGroupVersion

	schemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

	// AddToScheme registers the types of this package.
	AddToScheme = schemeBuilder.AddToScheme
)

// Resource qualifies a resource name with the API group.
func Resource(resource string) schema.GroupResource {
	return SchemeGroupVersion.WithResource(resource).GroupResource()
}

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(SchemeGroupVersion,
		&AgentRun{}, &AgentRunList{},
		&RouteLadder{}, &RouteLadderList{},
		&ProviderHealth{}, &ProviderHealthList{},
	)
	metav1.AddToGroupVersion(scheme, SchemeGroupVersion)
	return nil
}
